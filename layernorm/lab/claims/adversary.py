"""The adversary: cases at which statements about normalization tend to break, and the search.

A property is checked on random cases, by a climb from the worst of them (by random steps and, where
the violation has one, along its gradient), and on the cases here: rows that do not vary, one entry
that is not 0, rank one, sizes 1 to 3, scales and means that rounding notices, gates that are
saturated. What breaks the statement is printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from layernorm.lab.claims.checks import conditional, held
from layernorm.lab.claims.schema import Finding

SIZES = (1, 2, 3)
Case = tuple[Tensor, ...]
VARIES = "eps = 0, and the units of the case do not all agree"


def rows(units: int, huge: float = 1e100, mean: float = 1e6) -> dict[str, Tensor]:
    """One case of summed inputs, (1, units), by name; `huge` and `mean` as the type allows."""
    ramp = torch.linspace(-1, 1, units, dtype=torch.float64)[None]
    one = torch.eye(units, dtype=torch.float64)[:1]
    sign = 1 - 2 * (torch.arange(units) % 2).double()[None]
    return {
        "zeros": 0 * ramp,
        "all equal": 0 * ramp + 3,
        "one-hot": one,
        "one outlier": ramp + huge**0.1 * one,
        "two values": sign,
        "huge": huge * (ramp + one),
        "tiny": (ramp + one) / huge,
        "nearly constant": mean + ramp + one,
    }


def matrices(m: int, n: int, huge: float = 1e100) -> dict[str, Tensor]:
    """Weights or inputs, (m, n), by name."""
    rising, ramp = (1 + torch.arange(k, dtype=torch.float64) for k in (m, n))
    wave = torch.sin(torch.outer(rising, ramp))
    row, column = torch.zeros(m, n).double(), torch.zeros(m, n).double()
    row[0], column[:, 0] = ramp.sin(), rising.sin()
    return {
        "zeros": 0 * wave,
        "equal rows": ramp.sin().expand(m, n).clone(),
        "one row": row,
        "one column": column,
        "rank one": torch.outer(rising.sin(), ramp.cos()),
        "one-hot": torch.eye(m, n).double(),
        "huge": huge * wave,
        "tiny": wave / huge,
    }


def gates(units: int, gates: int) -> dict[str, Tensor]:
    """Biases, (gates * units), that hold gates open, closed, or one of each kind."""
    ones = torch.ones(gates * units, dtype=torch.float64)
    sign = (1 - 2 * (torch.arange(gates) % 2)).repeat_interleave(units)
    return {"gates open": 40 * ones, "gates closed": -40 * ones, "gates mixed": 40 * ones * sign}


def varies(a: Tensor, *_: Tensor) -> bool:
    """Tell whether the units of every case, (..., units), vary."""
    return bool((a.amax(-1) > a.amin(-1)).all())


def conditioning(a: Tensor) -> float:
    """The largest entry over the spread of the worst case: what multiplies rounding errors."""
    spread = a.std(-1, correction=0)
    ratio = torch.where(spread > 0, a.abs().amax(-1) / spread, 1.0)
    return max(1.0, ratio.max().item())


Violation = Callable[..., float | Tensor]  # a number, or a tensor that has a gradient


def always(*_: Tensor) -> bool:
    return True


def climb(violation: Violation, case: Case, meets=always, steps: int = 20) -> float:
    """The violation that random steps from a case reach, each kept where it is larger."""
    best, size = number(violation(*case)), 0.3
    for _ in range(steps):
        moved = tuple(x + size * x.abs().mean() * torch.randn_like(x) for x in case)
        value = number(violation(*moved)) if meets(*moved) else -math.inf
        case, size, best = (moved, 1.5 * size, value) if value > best else (case, 0.7 * size, best)
    return best


def ascend(violation: Violation, case: Case, meets=always, steps: int = 40) -> float:
    """The violation that steps along its gradient reach, each kept where it is larger.

    A violation without a gradient at a case, as one that is infinite there, ends the ascent.
    """
    best, size, start = -math.inf, 0.3, case
    for step in range(steps):
        leaves = tuple(x.detach().clone().requires_grad_() for x in case)
        value = violation(*leaves) if meets(*leaves) or step == 0 else -math.inf
        if number(value) > best:
            best, start, size = number(value), leaves, 1.5 * size
            if not isinstance(value, Tensor) or value.grad_fn is None:
                return best
            slopes = torch.autograd.grad(value, leaves, allow_unused=True)
            slopes = [torch.zeros(()) if g is None else g.nan_to_num(0, 0, 0) for g in slopes]
            length = max(1e-300, math.sqrt(sum(float(g.square().mean()) for g in slopes)))
        elif step == 0:
            return best  # minus infinity
        else:
            size *= 0.5
        pairs = zip((x.detach() for x in start), slopes, strict=True)
        case = tuple(x + size * x.abs().mean() * g / length for x, g in pairs)
    return best


def number(violation: float | Tensor) -> float:
    """A violation as a number: infinite if it is none, so that the search finds it."""
    value = violation.item() if isinstance(violation, Tensor) else violation
    return math.inf if math.isnan(value) else value


def searched(
    bound: float,
    evidence: str,
    violation: Violation,
    draws: Iterable[Case],
    cases: Mapping[str, Case],
    only_if: tuple[str, Callable[..., bool]] | None = None,
) -> Finding:
    """The finding of a property: whether draws, a climb and the adversary stay below a bound.

    The climb starts at the worst draw. A violation that is a tensor with a gradient is climbed
    along it, too.

    Args:
        bound: what every violation must lie below; one that is not a number does not.
        evidence: one sentence, of what is so if it holds; the search is added to it.
        violation: how far a case is from the statement, in a number or a tensor without
            dimensions.
        draws: random cases.
        cases: the adversary's, by name.
        only_if: a condition in words and whether a case meets it; the statement is conditional
            if only cases that do not meet it break it.
    """
    draws, meets = list(draws), only_if[1] if only_if else always
    off = {f"draw {i + 1}": number(violation(*case)) for i, case in enumerate(draws)}
    hardest = draws[max(range(len(draws)), key=list(off.values()).__getitem__)]
    with torch.random.fork_rng(devices=[]):
        off["the climb"] = climb(violation, hardest, meets)
    climbs = "a climb"
    if _has_slope(violation, hardest):
        off["the ascent"] = ascend(violation, hardest, meets)
        climbs += ", an ascent along the gradient"
    inside = {n: case for n, case in cases.items() if meets(*case)}
    off |= {name: number(violation(*case)) for name, case in inside.items()}
    others = {name: number(violation(*case)) for name, case in cases.items() if name not in inside}
    broken = [name for name, value in (off | others).items() if not value < bound]
    evidence += f" Tried: {len(draws)} draws, {climbs}, {len(cases)} cases of the adversary; "
    more = f" and {len(broken) - 6} more" if len(broken) > 6 else ""
    evidence += f"broken by {', '.join(broken[:6])}{more}." if broken else "none breaks it."
    largest = max(off.values())
    holds = not set(broken) & set(off)
    if not holds:
        evidence = f"Not so: {evidence}"
    if only_if is None:
        return held(holds, evidence, largest=largest)
    return conditional(holds, not broken, only_if[0], evidence, largest=largest)


def _has_slope(violation: Violation, case: Case) -> bool:
    value = violation(*(x.detach().clone().requires_grad_() for x in case))
    return isinstance(value, Tensor) and value.grad_fn is not None
