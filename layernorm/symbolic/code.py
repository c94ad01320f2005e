"""The derived gradients as Python: the printed text is the code that runs.

`source(method)` prints the backward pass of a method for a matrix of N cases (rows), or of weights;
`function(method)` runs that text. Works on NumPy arrays and PyTorch tensors alike: a sum over an
index becomes `.sum(axis)`, a sum divided by its length `.mean(axis)`, and each is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sympy
from sympy.printing.pycode import PythonCodePrinter

from layernorm.methods import FORMS
from layernorm.symbolic.gradients import MU, SIZE, K, S, V, affine, derive, eps_of


class Mean(sympy.Function):
    """The mean of an expression over its index."""


class Total(sympy.Function):
    """The sum of an expression over its index."""


class ArrayPrinter(PythonCodePrinter):
    """Indexed symbols print as arrays, sums as reductions along `axis`, what is subtracted last."""

    def __init__(self, axis: int, names: dict[str, str]):
        super().__init__({"fully_qualified_modules": False})
        self.axis, self.names = axis, {"xhat": "x_hat", "epsilon": "eps", **names}

    def _print_Symbol(self, e):
        return self.names.get(str(e), str(e))

    def _print_Indexed(self, e):
        return self._print_Symbol(e.base)

    def _print_Mean(self, e):
        return self._reduction(e, "mean")

    def _print_Total(self, e):
        return self._reduction(e, "sum")

    def _reduction(self, e, name):
        (of,) = e.args
        text = self._print(of) if of.is_Indexed else f"({self._print(of)})"
        return f"{text}.{name}({self.axis}, keepdims=True)"

    def _print_Add(self, e, order=None):
        plus = [self._print(term) for term in e.args if not term.could_extract_minus_sign()]
        minus = [self._print(-term) for term in e.args if term.could_extract_minus_sign()]
        return " - ".join([" + ".join(sorted(plus)), *sorted(minus)])

    def _print_Function(self, e):
        return f"{e.func.__name__}({', '.join(map(self._print, e.args))})"

    def _print_Pow(self, e, rational=True):
        return super()._print_Pow(e, rational=True)


def reduced(expression: sympy.Expr) -> sympy.Expr:
    """Sums as functions: Mean in terms where they are divided by their length, else Total."""

    def replaced(term: sympy.Expr, by: Callable) -> sympy.Expr:
        return term.replace(lambda e: isinstance(e, sympy.Sum), lambda e: by(e.function))

    def one(term: sympy.Expr) -> sympy.Expr:
        means = replaced(term, lambda f: SIZE * Mean(f))
        return replaced(term, Total) if SIZE in means.free_symbols else means

    return sympy.Add(*map(one, sympy.Add.make_args(expression)))


def statements(expression: sympy.Expr, target: str, printer: ArrayPrinter) -> list[str]:
    """Assignments that compute expression * s: each reduction on a line of its own, then / s."""
    numerator, lines = sympy.expand(reduced(expression) * S), []
    for reduction in sorted(numerator.atoms(Mean, Total), key=str):
        names = sorted(printer.doprint(e) for e in reduction.atoms(sympy.Indexed))
        name = "_".join([str(reduction.func).lower(), *names])
        lines.append(f"{name} = {printer.doprint(reduction)}")
        numerator = numerator.subs(reduction, sympy.Symbol(name))
    return [*lines, f"{target} = ({printer.doprint(numerator)})/s"]


# Arguments, names for v, dy and gain, lines before, and returned values: for a matrix of cases and
# units, and for what else a method averages over.
FRAME = ("dy, a, gain, eps", {"v": "a"}, (), "da, dgain[0], dbias[0]")
GROUPS = (
    "dy, a = (array.reshape(len(array), groups, -1) for array in (dy, a))",
    "gain = gain.reshape(groups, -1)",
)
FRAMES = {
    "weights": ("dw, v, g", {"dy": "dw", "gain": "g"}, (), "dv, dg"),
    "group": (
        "dy, a, gain, eps, groups",
        {"v": "a"},
        GROUPS,
        "da.reshape(len(a), -1), dgain.reshape(-1), dbias.reshape(-1)",
    ),
}


@cache
def source(method: str) -> str:
    """The backward pass of a method as the text of a Python function.

    (dy, a, gain, eps) with dy, a (N, H) and gain (H,); returns the gradients of a, gain and, where
    the method has a mean, bias. group: one more argument, the number of groups. weight: (dw, v, g)
    with dw, v (out, in) and g (out, 1); returns the gradients of v and g.

    Raises ValueError for an unknown method.

    >>> print(source("weight"))
    def weight_norm_backward(dw, v, g):
        variance = (v**2).sum(-1, keepdims=True)
        s = variance**(1/2)
        x_hat = v/s
        c = dw*g
        total_c_x_hat = (c*x_hat).sum(-1, keepdims=True)
        dv = (c - total_c_x_hat*x_hat)/s
        dg = (dw*x_hat).sum(-1, keepdims=True)
        return dv, dg
    """
    gradient, over = derive(method), FORMS[method].over
    arguments, names, before, returned = FRAMES.get(over, FRAME)
    returned = returned if gradient.mu != 0 else returned.removesuffix(", dbias[0]")
    shares = affine()
    printer = ArrayPrinter(0 if over == "cases" else -1, names)
    over_cases = ArrayPrinter(-1 if over == "weights" else 0, names)
    lines = [*before, *normalize(method, printer), f"c = {printer.doprint(shares['c'])}"]
    lines += statements(gradient.backward, f"d{names.get('v', 'v')}", printer)
    for name in ("gain", "bias"):
        target = f"d{names.get(name, name)}"
        if target in returned:
            lines.append(f"{target} = {over_cases.doprint(reduced(shares[f'd{name}']))}")
    return as_function(f"{method}_norm_backward({arguments})", [*lines, f"return {returned}"])


@cache
def layer_norm_source() -> str:
    """Layer normalization itself, printed from its definition: (a, gain, bias, eps)."""
    lines = normalize("layer", ArrayPrinter(-1, {"v": "a"}))
    return as_function("layer_norm(a, gain, bias, eps)", [*lines, "return gain*x_hat + bias"])


def normalize(method: str, printer: ArrayPrinter) -> list[str]:
    """The lines that compute mu (where there is one), variance, s and x_hat."""
    gradient = derive(method)
    mu = MU if gradient.mu != 0 else sympy.S.Zero
    steps = {
        "mu": reduced(gradient.mu),
        "variance": reduced(gradient.variance.subs(gradient.mu, mu)),
        "s": sympy.sqrt(sympy.Symbol("variance") + eps_of(method)),
        "x_hat": (V[K] - mu) / S,
    }
    return [f"{name} = {printer.doprint(e)}" for name, e in steps.items() if e != 0]


def as_function(signature: str, lines: list[str]) -> str:
    """The text of a function with this signature and body."""
    return "\n    ".join([f"def {signature}:", *lines])


@cache
def function(method: str) -> Callable:
    """The function that `source(method)` is the text of.

    Raises ValueError for an unknown method.

    >>> import numpy
    >>> dy, a = numpy.array([[1.0, 0.0, 0.0]]), numpy.array([[1.0, 2.0, 6.0]])
    >>> da, dgain, dbias = function("layer")(dy, a, numpy.ones(3), 0.0)
    >>> bool(abs(da.sum()) < 1e-15)
    True
    """
    return run(source(method))


def run(text: str, **known: object) -> Callable:
    """The last function that a text defines; `known` are names that it may use."""
    names = dict(known)
    exec(compile(text, "<derived by SymPy>", "exec"), names)
    last = text.rpartition("def ")[2]
    return names[last[: last.index("(")]]
