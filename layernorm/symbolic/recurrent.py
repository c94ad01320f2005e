"""The backward pass of a layer-normalized recurrent step: the chain rule over derived pieces.

A step is a list of four kinds of pieces, in the order in which they are computed:

    Linear       out = x @ w.T                 derivative: SymPy's, of a trace
    Norm         out = LN(a; gain, bias)       derivative: `layernorm.symbolic.gradients`
    Elementwise  out = a SymPy expression      derivative: SymPy's
    Split        parts of a stacked vector     derivative: the parts joined again

The program walks through the list backwards and adds up what arrives at each name. `source(step)`
prints the result, `function(step)` runs it on PyTorch tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import sympy
import torch
from torch import Tensor

from layernorm.symbolic import code
from layernorm.symbolic.code import ArrayPrinter
from layernorm.symbolic.definitions import check_name
from layernorm.symbolic.sums import index

PRINTER = ArrayPrinter(-1, {})


class sigmoid(sympy.Function):
    """The logistic function, (1 + tanh(x / 2)) / 2: its derivative is taken from there.

    >>> x = sympy.Symbol("x")
    >>> sigmoid(x).diff(x)
    (1 - sigmoid(x))*sigmoid(x)
    """

    def fdiff(self, argindex=1):
        x, y = sympy.symbols("x y")
        slope = ((1 + sympy.tanh(x / 2)) / 2).diff(x).subs(sympy.tanh(x / 2), 2 * y - 1)
        return (y * sympy.cancel(slope / y)).subs(y, self)


@dataclass(frozen=True)
class Linear:
    """out = x @ w.T."""

    out: str
    x: str
    w: str

    def forward(self) -> str:
        return f"{self.out} = {self.x} @ {self.w}.T"

    def backward(self) -> Iterator[tuple[str, str]]:
        n, inputs, outputs = index("n"), index("I"), index("O")
        x = sympy.MatrixSymbol(self.x, n, inputs)
        w = sympy.MatrixSymbol(self.w, outputs, inputs)
        dout = sympy.MatrixSymbol(f"d{self.out}", n, outputs)
        functional = sympy.Trace(dout.T * x * w.T)
        for array in (x, w):
            yield str(array), str(functional.diff(array)).replace("*", " @ ")


@dataclass(frozen=True)
class Norm:
    """out = LN(a; gain, bias)."""

    out: str
    a: str
    gain: str
    bias: str

    def forward(self) -> str:
        return f"{self.out} = layer_norm({self.a}, {self.gain}, {self.bias}, eps)"

    def backward(self) -> Iterator[tuple[str, str]]:
        call = f"layer_norm_backward(d{self.out}, {self.a}, {self.gain}, eps)"
        yield f"{self.a}, {self.gain}, {self.bias}", call


@dataclass(frozen=True)
class Elementwise:
    """out = an expression in arrays of one shape, and in vectors shared by all cases."""

    out: str
    expression: sympy.Expr
    vectors: tuple[str, ...] = ()

    def forward(self) -> str:
        return f"{self.out} = {PRINTER.doprint(self.expression)}"

    def backward(self) -> Iterator[tuple[str, str]]:
        dout = sympy.Symbol(f"d{self.out}")
        for x in sorted(self.expression.free_symbols, key=str):
            slope = self.expression.diff(x).subs(self.expression, sympy.Symbol(self.out))
            text = PRINTER.doprint(dout * slope)
            if str(x) in self.vectors:
                text = f"{text}.sum(0)" if text.isidentifier() else f"({text}).sum(0)"
            yield str(x), text


@dataclass(frozen=True)
class Split:
    """The parts of a stacked vector; shares say how the width is divided."""

    outs: tuple[str, ...]
    x: str
    shares: tuple[int, ...]

    @property
    def out(self) -> str:
        return ", ".join(self.outs)

    def forward(self) -> str:
        return f"{self.out} = split({self.x}, {self.shares})"

    def backward(self) -> Iterator[tuple[str, str]]:
        yield self.x, f"join({', '.join(f'd{out}' for out in self.outs)})"


@dataclass(frozen=True)
class Step:
    """A recurrent step: arguments (all of them get a gradient), outputs, and its pieces."""

    arguments: str
    outputs: str
    pieces: tuple[Linear | Norm | Elementwise | Split, ...]


def _lstm() -> Step:
    """Eqs. (20) to (22) of the paper, gates in torch's order."""
    norm_h, norm_x, b, i, f, g, o, c, norm_c = sympy.symbols("norm_h norm_x b i f g o c norm_c")
    return Step(
        "x h c w_ih w_hh b gain_ih bias_ih gain_hh bias_hh gain_c bias_c",
        "h_new c_new",
        (
            Linear("from_h", "h", "w_hh"),
            Linear("from_x", "x", "w_ih"),
            Norm("norm_h", "from_h", "gain_hh", "bias_hh"),
            Norm("norm_x", "from_x", "gain_ih", "bias_ih"),
            Elementwise("gates", norm_h + norm_x + b, vectors=("b",)),
            Split(("i", "f", "g", "o"), "gates", (1, 1, 1, 1)),
            Elementwise("c_new", sigmoid(f) * c + sigmoid(i) * sympy.tanh(g)),
            Norm("norm_c", "c_new", "gain_c", "bias_c"),
            Elementwise("h_new", sigmoid(o) * sympy.tanh(norm_c)),
        ),
    )


def _gru() -> Step:
    """Eqs. (26) to (28) of the paper in torch's convention: z keeps the old state."""
    gates_h, gates_x, b_gates, n_h, n_x, b_n = sympy.symbols("gates_h gates_x b_gates n_h n_x b_n")
    r, z, n, h = sympy.symbols("r z n h")
    parts = [
        Split((f"{name}_gates", f"{name}_n"), name, (2, 1))
        for name in ("from_h", "from_x", "gain_hh", "bias_hh", "gain_ih", "bias_ih", "b")
    ]
    norms = [
        Norm(f"{part}_{state}", f"from_{state}_{part}", f"gain_{of}_{part}", f"bias_{of}_{part}")
        for state, of in (("h", "hh"), ("x", "ih"))
        for part in ("gates", "n")
    ]
    return Step(
        "x h w_ih w_hh b gain_ih bias_ih gain_hh bias_hh",
        "h_new",
        (
            Linear("from_h", "h", "w_hh"),
            Linear("from_x", "x", "w_ih"),
            *parts,
            *norms,
            Elementwise("gates", gates_h + gates_x + b_gates, vectors=("b_gates",)),
            Split(("r", "z"), "gates", (1, 1)),
            Elementwise("n", sympy.tanh(n_x + b_n + sigmoid(r) * n_h), vectors=("b_n",)),
            Elementwise("h_new", (1 - sigmoid(z)) * n + sigmoid(z) * h),
        ),
    )


def _rnn() -> Step:
    """Eq. (4) of the paper, f = tanh: the sum of both terms is normalized once."""
    from_h, from_x, norm = sympy.symbols("from_h from_x norm")
    return Step(
        "x h w_ih w_hh gain bias",
        "h_new",
        (
            Linear("from_h", "h", "w_hh"),
            Linear("from_x", "x", "w_ih"),
            Elementwise("a", from_h + from_x),
            Norm("norm", "a", "gain", "bias"),
            Elementwise("h_new", sympy.tanh(norm)),
        ),
    )


STEPS = {"rnn": _rnn, "lstm": _lstm, "gru": _gru}


@cache
def source(step: str) -> str:
    """The backward pass of a step, `rnn`, `lstm` or `gru`, as the text of three Python functions.

    The last, ln_STEP_backward, takes the gradients of the outputs, the step's arguments as in
    `layernorm.functional` with every pair (gain, bias) as two, and eps; x is (N, I), states (N, H).
    It returns the gradients of all arguments, in their order.

    Raises ValueError for an unknown step.
    """
    check_name("step", step, STEPS)
    parts = STEPS[step]()
    arguments, outputs = parts.arguments.split(), parts.outputs.split()
    arrives: dict[str, list[str]] = defaultdict(list)
    for out in outputs:
        arrives[out].append(f"d{out}")
    lines = [piece.forward() for piece in parts.pieces]
    for piece in reversed(parts.pieces):
        for name in piece.out.split(", "):
            lines += _sum_up(name, arrives[name])
        for names, gradient in piece.backward():
            if ", " in names:
                targets = {n: f"d{n}" + "_1" * (n in arrives) for n in names.split(", ")}
                lines.append(f"{', '.join(targets.values())} = {gradient}")
                for name, target in targets.items():
                    arrives[name].append(target)
            else:
                arrives[names].append(gradient)
    for name in arguments:
        lines += _sum_up(name, arrives[name])
    lines.append(f"return {', '.join(f'd{name}' for name in arguments)}")
    upstream = ", ".join(f"d{out}" for out in outputs)
    signature = f"ln_{step}_backward({upstream}, {', '.join(arguments)}, eps)"
    texts = (code.layer_norm_source(), code.source("layer"), code.as_function(signature, lines))
    return "\n\n\n".join(texts)


@cache
def function(step: str) -> Callable:
    """The function that the last part of `source(step)` is the text of, on PyTorch tensors.

    Raises ValueError for an unknown step.
    """
    return code.run(source(step), split=_split, join=_join, sigmoid=torch.sigmoid, tanh=torch.tanh)


def _sum_up(name: str, arriving: list[str]) -> list[str]:
    """The line that adds up what arrives at a name; none where it stands already."""
    return [] if arriving == [f"d{name}"] else [f"d{name} = {' + '.join(arriving)}"]


def _split(x: Tensor, shares: tuple[int, ...]) -> tuple[Tensor, ...]:
    unit = x.shape[-1] // sum(shares)
    return torch.split(x, [unit * share for share in shares], dim=-1)


def _join(*parts: Tensor) -> Tensor:
    return torch.cat(parts, dim=-1)
