"""How far the fused path is from the definition, values and gradients, in float64.

eps is another one than everybody's default, so that nothing can have it built in."""

import torch

from layernorm.recurrent import cpu, definition
from layernorm.recurrent.variants import FORMS

EPS = 0.1


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
        values = getattr(module, kind)(x, batch_sizes, *states, w, EPS, *options)
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
