"""How far the fused path is from the definition, values and gradients, in float64."""

import torch

from layernorm.recurrent import cpu, definition
from layernorm.recurrent.variants import FORMS


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()


def pair(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
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


def leaves(w) -> list[torch.Tensor]:
    parts = [p for p in w if p is not None]
    return [t for p in parts for t in (p if isinstance(p, tuple) else (p,))]


def both(kind, sizes, inputs, units, variant="paper", reverse=False, bias=True, uniform=False):
    """Values and gradients of the definition and of the fused path, as two lists."""
    w = weights(kind, inputs, units, variant, bias)
    batch_sizes = None if uniform else torch.tensor(sizes)
    x = draw(sum(sizes), inputs, seed=20)
    states = [draw(sizes[0], units, seed=21 + k) for k in range(2 if kind == "lstm" else 1)]
    options = (variant, reverse) if kind == "lstm" else (reverse,)
    results = []
    for module in (definition, cpu):
        values = getattr(module, kind)(x, batch_sizes, *states, w, 1e-5, *options)
        slopes = [draw(*v.shape, seed=30 + k).detach() for k, v in enumerate(values)]
        gradients = torch.autograd.grad(values, [x, *states, *leaves(w)], slopes)
        results.append([*(v.detach() for v in values), *gradients])
    return results


def distance(*case, **options) -> float:
    """The largest difference, relative to the size of what it is a difference of."""
    expected, got = both(*case, **options)
    return max(
        float((g - e).abs().max() / max(1.0, float(e.abs().max())))
        for e, g in zip(expected, got, strict=True)
    )


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
        w_hh = torch.nn.functional.pad(columns, (0, units - 2))
        w = w._replace(w_ih=columns.clone().requires_grad_(), w_hh=w_hh.requires_grad_())
        x = torch.tensor([[1.0, 1], [1, -1], [1, 3]], dtype=torch.float64)
        h = torch.nn.functional.pad(x.flip(0), (0, units - 2))
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


def difference(expected: torch.Tensor, got: torch.Tensor) -> float:
    """The largest, relative to the size of what it is a difference of; NaN belongs to NaN."""
    expected, got = expected.detach().cpu(), got.detach().cpu()
    if not torch.equal(expected.isnan(), got.isnan()):
        return float("inf")
    expected, got = expected.nan_to_num(), got.nan_to_num()
    return float((got - expected).abs().max() / max(1.0, float(expected.abs().max())))
