"""The fused paths against the definition: cases, their values and gradients, how far they are."""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
from library.oracle import assert_rounded
from torch import Tensor
from torch.nn.functional import pad

from layernorm.recurrent import cpu, definition, gpu
from layernorm.recurrent.variants import FORMS

NETS = [(form if form == "gru" else "lstm", form) for form in FORMS]
F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16


class Case(NamedTuple):
    """A net and sequences: rows of each step, which need not be equal. eps is another one than
    everybody's default, so that nothing can have it built in."""

    kind: str
    form: str
    sizes: tuple[int, ...] = (3, 2, 2, 1)
    units: int = 7
    inputs: int = 4
    reverse: bool = False
    bias: bool = True
    eps: float = 0.1


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=F64)).requires_grad_()


def pair(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A gain and a bias, neither of them trivial."""
    return (1 + draw(n, seed=seed, scale=0.3)).detach().requires_grad_(), draw(n, seed=seed + 1)


def weights(kind: str, inputs: int, units: int, variant: str = "paper", bias: bool = True):
    gates = {"lstm": 4, "gru": 3}[kind] * units
    w_ih = draw(gates, inputs, seed=1, scale=inputs**-0.5)
    w_hh = draw(gates, units, seed=2, scale=units**-0.5)
    b = draw(gates, seed=3, scale=0.3) if bias else None
    if kind == "gru":
        return definition.GRUWeights(w_ih, w_hh, b, pair(gates, 4), pair(gates, 6))
    terms = FORMS[variant].terms
    norms = (pair(gates, 4) if terms == 2 else None, pair(gates, 6) if terms else None)
    return definition.LSTMWeights(w_ih, w_hh, b, *norms, pair(units, 8))


def leaves(w) -> list[Tensor]:
    parts = [p for p in w if p is not None]
    return [t for p in parts for t in (p if isinstance(p, tuple) else (p,))]


def converted(value, dtype: torch.dtype, device: str = "cpu"):
    """Tensors, in tuples of all kinds, as leaves on a device."""
    if isinstance(value, Tensor):
        return value.detach().to(device, dtype).requires_grad_()
    if value is None:
        return None
    parts = [converted(part, dtype, device) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def tensors(case: Case, dtype: torch.dtype = F64, path=cpu):
    """x, the initial states, and the weights, on the device of a path."""
    w = weights(case.kind, case.inputs, case.units, case.form, case.bias)
    states = [draw(case.sizes[0], case.units, seed=21 + k) for k in range(2)]
    x = draw(sum(case.sizes), case.inputs, seed=20)
    device = "cuda" if path is gpu and torch.cuda.is_available() else "cpu"
    return converted((x, states[: 1 if case.kind == "gru" else 2], w), dtype, device)


def run(path, case: Case, x: Tensor, states: list[Tensor], w) -> list[Tensor]:
    """Outputs and last states."""
    uniform = len(set(case.sizes)) == 1
    form = () if case.kind == "gru" else (case.form,)
    sizes = None if uniform else torch.tensor(case.sizes)
    return list(getattr(path, case.kind)(x, sizes, *states, w, case.eps, *form, case.reverse))


def results(path, case: Case, x: Tensor, states: list[Tensor], w) -> list[Tensor]:
    """Outputs, last states, and the gradients of everything there is."""
    values = run(path, case, x, states, w)
    slopes = [draw(*v.shape, seed=30 + k).detach().to(v) for k, v in enumerate(values)]
    gradients = torch.autograd.grad(values, [x, *states, *leaves(w)], slopes)
    return [*(v.detach() for v in values), *gradients]


def differences(got: Iterable[Tensor], expected: Iterable[Tensor]) -> list[float]:
    """The largest of each, relative to the size of what it is a difference of."""
    return [
        float((g.double() - e.double()).abs().max() / max(1.0, float(e.double().abs().max())))
        for g, e in zip(got, expected, strict=True)
    ]


def agrees(case: Case, tolerance: float = 1e-11, path=gpu) -> None:
    """In float64."""
    at = tensors(case, path=path)
    expected = results(definition, case, *at)
    found = differences(results(path, case, *at), expected)
    assert max(found) < tolerance, found  # not true of NaN either
    assert all(e.isfinite().all() for e in expected)


def as_exact(case: Case, dtype: torch.dtype, path=gpu) -> None:
    """As close as rounding allows: products in this type, everything else at least in float32."""
    low = tensors(case, dtype, path)
    exact = converted(low, F64, low[0].device)  # the very same numbers
    got = results(path, case, *low)
    assert [g.dtype for g in got] == [dtype] * len(got)
    assert_rounded(got, lambda: results(definition, case, *exact), F32, dtype)


def distance(kind, sizes, inputs, units, variant="paper", reverse=False, bias=True) -> float:
    """How far the C++ is from the definition, in float64; with another eps than everybody's
    default, so that nothing can have it built in."""
    form = "gru" if kind == "gru" else variant
    case = Case(kind, form, tuple(sizes), units, inputs, reverse, bias, eps=0.1)
    at = tensors(case)
    return max(differences(*(results(path, case, *at) for path in (cpu, definition))))


@contextlib.contextmanager
def threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def far_from_zero(module, kind: str, units: int, variant: str = "paper", move=tuple) -> float:
    """How far 2^54, added to all that is normalized, takes values and gradients of one step.

    Products and sums are exact, so it changes nothing. In cell_only, which normalizes nothing else,
    it is the cell that is far from zero; the gates are open.
    """
    w = weights(kind, 2, units, variant)
    steps = 8.0 * (torch.arange(len(w.w_ih), dtype=torch.float64).square() % 5)
    cell, results = variant == "cell_only", []
    for where, mean in ((definition, 0.0), (module, 2.0**54)):
        columns = torch.stack([torch.full_like(steps, 2.0**54 if cell else mean), steps], 1)
        w_hh = pad(columns, (0, units - 2))
        w = w._replace(w_ih=columns.clone().requires_grad_(), w_hh=w_hh.requires_grad_())
        x = torch.tensor([[1.0, 1], [1, -1], [1, 3]], dtype=torch.float64)
        h = pad(x.flip(0), (0, units - 2))
        c = mean + steps[:units].expand(3, units) if cell else draw(3, units, seed=22)
        states = [h, c.detach()][: 1 + (kind == "lstm")]
        at = x.requires_grad_(), [s.requires_grad_() for s in states], w
        values, gradients = one_step(where, kind, variant, *(move(at) if where is module else at))
        for k in (0, 1):  # of x and h; the others are the sum's that cancels, times 2^54
            gradients[k] = gradients[k][:, 1:]
        results.append([*values[: 2 if cell else 3], *gradients])
    return max(map(difference, *results))


def overflow(module, kind: str, units: int, variant: str = "paper", move=tuple) -> float:
    """How far values and x's gradient are from the definition's, which are NaN in one sequence."""
    w = weights(kind, 2, units, variant)
    x, h, c = (draw(3, n, seed=20 + n).detach() for n in (2, units, units + 1))
    for t in (x, c):
        t[1] *= 1e160
    states = [h, c[:, 1:]][: 1 + (kind == "lstm")]
    at, results = (x.requires_grad_(), [s.clone().requires_grad_() for s in states], w), []
    for where in (definition, module):
        values, gradients = one_step(where, kind, variant, *(move(at) if where is module else at))
        results.append([*values, gradients[0]])
    assert results[0][0].isnan().any(1).tolist() == [False, True, False]
    return max(map(difference, *results))


def one_step(module, kind, variant, x, states, w):
    values = getattr(module, kind)(x, None, *states, w, 1e-5, *[variant][: kind == "lstm"])
    slopes = [draw(*v.shape, seed=30 + k).detach().to(v) for k, v in enumerate(values)]
    return list(values), list(torch.autograd.grad(values, [x, *states, *leaves(w)], slopes))


def difference(expected: Tensor, got: Tensor) -> float:
    """The largest, relative to the size of what it is a difference of; NaN belongs to NaN."""
    expected, got = expected.detach().cpu(), got.detach().cpu()
    if not torch.equal(expected.isnan(), got.isnan()):
        return float("inf")
    expected, got = expected.nan_to_num(), got.nan_to_num()
    return float((got - expected).abs().max() / max(1.0, float(expected.abs().max())))
