"""The claims that comparisons of experiments decide: each stands in the rows of a plan, once.

Rule and evidence are made from these rows and from the published runs, none of it typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layernorm.lab.claims import Finding, declare
from layernorm.lab.claims.schema import EXPLORATORY, NOT_YET_TESTED
from layernorm.lab.experiments import NAMES, get
from layernorm.lab.experiments.compare import Verdicts
from layernorm.lab.experiments.contrasts import SHARED, Comparison, Comparisons, Said
from layernorm.lab.experiments.judged import (
    AT_RATES,
    DEPENDS,
    INCONCLUSIVE,
    SUPPORTED,
    Judged,
    together,
)
from layernorm.lab.experiments.report import recorded, share

WIDTH = "half-width / margin"  # the plans ask for at most `compare.NARROW`
SAYS = {
    "better": "lower by more than the margin",
    "not worse": "not higher by more than the margin",
    "same": "the same to within the margin",
}


def rule(experiment: Any, plan: Comparisons, said: Said, rows: Sequence[Comparison]) -> str:
    """The rule of a claim in words, made from its rows and the plan of its published runs."""
    scale = experiment.profile(plan.profile)
    plan = experiment.compared(plan.profile)
    confidence = plan.confidence(rows[0].family, scale.arms)
    count = round(SHARED / (1 - confidence))
    parts = [f"experiment {experiment.name}, profile {plan.profile}"]
    for margin in dict.fromkeys(row.margin for row in rows):
        names = " and ".join(row.name for row in rows if row.margin == margin)
        parts.append(f"{margin.of}, {names}, margin {margin}: {margin.why}")
        parts += [f"null: {margin.null}"] * bool(margin.null)
    parts.append(f"the statement: {SAYS[rows[0].says]}")
    if rows[0].family == EXPLORATORY:
        parts.append("exploratory: shown, and no verdict")
    if said.given:
        parts.append(f"inconclusive unless supported: {' and '.join(said.given)}")
    parts.append(
        "each arm at its tuned rate, differences paired by seed, Student's interval of "
        f"{confidence:.2%}, as {count} comparisons share 5%"
    )
    if scale.first is not None:
        lengthened = (
            f" (the first stage had {scale.short_first} when the runs began; the larger of both "
            "numbers holds)"
        ) * bool(scale.short_first)
        parts.append(
            f"{scale.first} seeds, whose spread says how many follow, at most {len(scale.seeds)} "
            f"in all{lengthened}; rates tuned with "
            f"{len(scale.tuning_seeds)} seeds, inconclusive if a rate within one standard error "
            "of the best decides otherwise"
        )
    gates = ", ".join(gate.fails for gate in plan.gates)
    failed = f" or an arm {gates}" * bool(gates)
    return "; ".join([*parts, f"inconclusive, too, if a run diverged{failed}"])


def finding(said: Said, rows: Sequence[Comparison], found: Verdicts | None) -> Finding:
    """The verdict on all rows of a claim, after those that must be supported first; while runs that
    are planned for any of them are missing, there is none."""
    if found is None or not all(map(found.made, (*map(found.rows.__getitem__, said.given), *rows))):
        return Finding(NOT_YET_TESTED)
    judged = {name: found[name] for name in (*said.given, *(row.name for row in rows))}
    own = [judged[row.name] for row in rows]
    verdict = together(one.verdict for one in own)
    problems = dict.fromkeys(one.problem for one in judged.values() if one.problem)
    unmet = [name for name in said.given if judged[name].verdict != SUPPORTED]
    reason = " ".join(problems) or None
    if unmet and not problems:
        reason = f"Not supported, which comes first: {' and '.join(unmet)}."
    if reason is None and verdict == INCONCLUSIVE:
        undecided = [f'"{one.row.name}"' for one in own if one.verdict == INCONCLUSIVE]
        reason = f"The runs do not decide {' and '.join(undecided)}."
    if reason is None and verdict == DEPENDS:
        reason = "; ".join(f"{one.row.name}: {one.verdict}" for one in own) + "."
    seeds = sorted({one.difference.n for one in judged.values() if one.difference})
    evidence = "; ".join(f"{name}: {one}" for name, one in judged.items())
    levels = " or ".join(dict.fromkeys(f"{one.confidence:.2%}" for one in judged.values()))
    level = f"{levels} intervals, {' or '.join(map(str, seeds))} seeds"
    evidence = f"Mean difference ({level}): {evidence}." if seeds else ""
    shown = {
        "numbers": {name: one.difference.mean for name, one in judged.items() if one.difference},
        "table": tuple(
            table_row(name, one, found, alone=len(judged) == 1) for name, one in judged.items()
        ),
    }
    if rows[0].family == EXPLORATORY:
        return Finding(EXPLORATORY, " ".join(filter(None, (evidence, *problems))), **shown)
    verdict = INCONCLUSIVE if problems or unmet else verdict
    return Finding(verdict, evidence, reason=reason, **shown)


def table_row(name: str, one: Judged, found: Verdicts, *, alone: bool) -> dict[str, str]:
    """A comparison as the ledger shows it: all of it from the runs and the plan."""
    shown, problem = one.difference, one.problem or ""
    problem = problem[:1].lower() + problem[1:]
    return {
        "comparison": name,
        "n": str(shown.n) if shown else "",
        "interval": f"{shown:.3g}" if shown else "",
        "margin": str(one.row.margin),
        WIDTH: f"{(shown.high - shown.low) / 2 / one.row.margin.size:.2f}" if shown else "",
        "verdict": "" if alone or one.verdict == EXPLORATORY else one.verdict,
        "same verdict for margins": one.reach(),
        "possible": one.possible(),
        AT_RATES: one.elsewhere(),
        "of the paper's updates": share(found, one.row.arms),
        "but": problem if one.verdict == EXPLORATORY else "",
    }


ROWS: dict[str, tuple[Any, Comparisons, Said, Sequence[Comparison]]] = {}  # by the claim's id


def _declare(experiment: Any, plan: Comparisons, said: Said, rows: Sequence[Comparison]) -> None:
    ROWS[said.id] = experiment, plan, said, rows
    declare(
        id=said.id,
        statement=said.statement,
        kind="experiment",
        chapter=said.chapter or plan.chapter,
        rule=rule(experiment, plan, said, rows),
        check=lambda: finding(said, rows, recorded(experiment, plan)),
        runs=f"{experiment.name}-{plan.profile}",
    )


for _experiment in map(get, NAMES):
    for _plan in _experiment.plans():
        for _said, _rows in _plan.claims().items():
            _declare(_experiment, _plan, _said, _rows)
