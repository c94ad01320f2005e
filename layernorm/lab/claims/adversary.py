"""The adversary: cases at which statements about normalization tend to break, and the search.

A property is checked on random cases, by a climb from the worst of them, and on the cases here:
rows that do not vary, one entry that is not 0, rank one, sizes 1 to 3, scales and means that
rounding notices, gates that are saturated. What breaks the statement is printed.
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
VARIES = "the units of the case do not all agree"


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
        "small spread": mean + ramp + one,
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


def climb(violation: Callable[..., float], case: Case, steps: int = 20) -> float:
    """The violation that random steps from a case reach, each kept where it is larger."""
    best, size = violation(*case), 0.3
    for _ in range(steps):
        moved = tuple(x + size * x.abs().mean() * torch.randn_like(x) for x in case)
        value = violation(*moved)
        case, size, best = (moved, 1.5 * size, value) if value > best else (case, 0.7 * size, best)
    return best


def searched(
    bound: float,
    evidence: str,
    violation: Callable[..., float],
    draws: Iterable[Case],
    cases: Mapping[str, Case],
    only_if: tuple[str, Callable[..., bool]] | None = None,
) -> Finding:
    """The finding of a property: whether draws, a climb and the adversary stay below a bound.

    Args:
        bound: what every violation must lie below; one that is not a number does not.
        evidence: one sentence; the search is added to it.
        violation: how far a case is from the statement.
        draws: random cases.
        cases: the adversary's, by name.
        only_if: a condition in words and whether a case meets it; the statement is conditional
            if only cases that do not meet it break it.
    """
    draws = list(draws)
    off = {f"draw {i + 1}": violation(*case) for i, case in enumerate(draws)}
    hardest = max(range(len(draws)), key=list(off.values()).__getitem__)
    with torch.random.fork_rng(devices=[]):
        off["the climb"] = climb(violation, draws[hardest])
    inside = {n: case for n, case in cases.items() if only_if is None or only_if[1](*case)}
    off |= {name: violation(*case) for name, case in inside.items()}
    others = {name: violation(*case) for name, case in cases.items() if name not in inside}
    broken = [name for name, value in (off | others).items() if not value < bound]
    evidence += f" Tried: {len(draws)} draws, a climb, {len(cases)} cases of the adversary; "
    evidence += f"broken by {', '.join(broken[:6])}." if broken else "none breaks it."
    largest = max((v for v in off.values() if not math.isnan(v)), default=math.nan)
    holds = not set(broken) & set(off)
    if only_if is None:
        return held(holds, evidence, largest=largest)
    return conditional(holds, not broken, only_if[0], evidence, largest=largest)
