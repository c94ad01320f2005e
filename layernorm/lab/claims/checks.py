"""Parts of checks: cases to draw, violations to measure, and the finding that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from layernorm.lab.claims.schema import Finding
from layernorm.lab.experiments.judged import DEPENDS, INCONCLUSIVE, together

LAYER_NORM = "layernorm.functional.layer_norm"  # where mutants are put
BATCH_NORM = "layernorm.functional.batch_norm"
Truth = bool | Tensor  # of numbers that were compared, or of tensors


def draw(*shape: int, mean: float = 0.0, spread: float = 1.0) -> Tensor:
    """Normally distributed numbers in float64."""
    return mean + spread * torch.randn(*shape, dtype=torch.float64)


def seeds(count: int) -> range:
    """Seeds that follow from the one with which the check began, for what is drawn by a seed."""
    first = 1000 * torch.initial_seed()
    return range(first + 1, first + 1 + count)


def largest(*tensors: Tensor) -> float:
    """The largest absolute value in any of the tensors; NaN if there is one."""
    return torch.stack([x.detach().abs().max() for x in tensors]).max().item()


def size(*tensors: Tensor) -> Tensor:
    """The largest absolute value in any of the tensors, as a tensor that has a gradient."""
    return torch.stack([x.abs().max() for x in tensors]).max()


def worst(*values: float) -> float:
    """The largest of several numbers; NaN if there is one."""
    return max(values, key=lambda value: (value != value, value))


def below(value: float, bound: float) -> str:
    """On which side of a bound a value lies, in words that no other machine changes."""
    return f"{'below' if value < bound else 'above'} {bound:g}".replace("e-0", "e-")


def spelled(expression: object) -> str:
    """Return one of SymPy's expressions as a sentence has it.

    >>> spelled("sqrt(delta**2*sigma + epsilon)/2")
    '√(δ² σ + ε)/2'
    """
    found = str(expression)
    for name, sign in ("delta", "δ"), ("sigma", "σ"), ("epsilon", "ε"), ("sqrt(", "√("):
        found = found.replace(name, sign)
    return found.replace("**2", "²").replace("*", " ")


def less(value: float, bound: float) -> str:
    """On which side of a bound a value lies, in a comparison."""
    return f"{'less' if value < bound else 'more'} than {bound:g}".replace("e-0", "e-")


def held(holds: Truth, evidence: str, **numbers: SupportsFloat) -> Finding:
    """The finding of a property that holds or does not."""
    return Finding("held" if holds else "refuted", evidence, numbers=numbers)


def proved(holds: Truth, evidence: str, **numbers: SupportsFloat) -> Finding:
    """The finding of a proof that goes through or does not."""
    return Finding("proved" if holds else "refuted", evidence, numbers=numbers)


def printed(holds: Truth, evidence: str, **numbers: SupportsFloat) -> Finding:
    """The finding of a statement about a source that is so printed or not."""
    return Finding("so printed" if holds else "not so printed", evidence, numbers=numbers)


def within(bound: float, evidence: str, **violations: float) -> Finding:
    """The finding of a property whose violations must lie below a bound.

    In the evidence, `{less}` and `{below}` stand for the words of these names.
    """
    off = worst(*violations.values())
    evidence = evidence.format(less=less(off, bound), below=below(off, bound))
    return held(off < bound, evidence, **violations)


def conditional(
    inside: Truth,
    outside: Truth,
    condition: str,
    evidence: str,
    holds: Callable[..., Finding] = held,
    **numbers: SupportsFloat,
) -> Finding:
    """The finding of a statement with a case on each side of its condition.

    Args:
        inside: it holds where the condition is met; otherwise it is refuted.
        outside: it holds where the condition is not met, too: then it needs none.
        condition: which one.
        evidence: what was found on both sides.
        holds: `held` for a property, `proved` for a proof.
        numbers: as in `Finding`.
    """
    if not inside or outside:
        return holds(inside, evidence, **numbers)
    return Finding("conditional", evidence, condition, numbers=numbers)


def shared(verdicts: Iterable[str], evidence: str, why: str, **shown: Any) -> Finding:
    """The finding of an experiment on the verdict that all conditions share; `why`: the reason
    where they share none. `shown`: as in `Finding`."""
    found = together(verdicts)
    reason = why if found in (INCONCLUSIVE, DEPENDS) else None
    return Finding(found, evidence, reason=reason, **shown)


def timed(
    place: str, middle: float, low: float, high: float, n: int, margin: str, verdict: str
) -> dict[str, str]:
    """A ratio of times as the ledger shows it; `n`: of how many processes."""
    return {
        "comparison": place,
        "n": str(n),
        "ratio": f"{middle:.3g} [{low:.3g}, {high:.3g}]",
        "margin": margin,
        "verdict": verdict,
    }
