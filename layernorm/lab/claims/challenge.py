"""A claim decided afresh on this machine, to be put beside the verdict that is published.

    layernorm challenge faster-per-update/adding

Arms of an experiment are run with seeds of which nobody has seen a run, at the published learning
rates, those of a tie too, and planned in the same stages; a benchmark is measured again; a property
is searched from other random draws, and a proof is checked once more. The rule is the published
one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layernorm.lab import records
from layernorm.lab.claims import experiments, levels, registry
from layernorm.lab.claims.schema import EXPLORATORY, NOT_YET_TESTED, Claim, ClaimError, Finding
from layernorm.lab.claims.verdicts import Stored, code
from layernorm.lab.experiments.contrasts import difference
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.sweep import carry_out
from layernorm.lab.records.files import write
from layernorm.lab.records.published import published as published_runs

if TYPE_CHECKING:
    import pandas

FIRST = 2_000_000  # of the seeds that are taken where none are given
DRAWS = (1, 2, 3, 4, 5)  # seeds of the random draws of a property
LEVELS = {level.id: level for level in levels.LEVELS}


@dataclass(frozen=True)
class Answer:
    """A fresh verdict beside the published one.

    `seeds`: of the runs or the draws. `differences`: of an experiment's comparisons, by seed.
    """

    claim: Claim
    published: Finding
    fresh: Finding
    seeds: tuple[int, ...] = ()
    differences: dict[str, dict[int, float]] | None = None

    @property
    def agrees(self) -> bool:
        return self.published.verdict == self.fresh.verdict

    def save(self, folder: Path) -> Path:
        """Write it as one JSON file, with the machine and the digest of the check's code."""
        about = {"claim": self.claim.id, "statement": self.claim.statement, "rule": self.claim.rule}
        found = {"published": asdict(self.published), "fresh": asdict(self.fresh)}
        document = {
            **about,
            **found,
            "seeds": self.seeds,
            "differences": self.differences,
            "code": code(self.claim),
            "environment": records.environment(),
        }
        target = folder / f"{self.claim.id.replace('/', '_')}.json"
        write(target, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return target


def answers(folder: Path) -> pandas.DataFrame:
    """The answers saved in a folder, a row a claim: its verdicts, what the fresh one rests on, and
    the processor; no rows where there are none."""
    import pandas

    rows = {}
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        what = "seeds" if registry.get(told["claim"]).kind == "experiment" else "draws"
        rows[told["claim"]] = {
            "published": told["published"]["verdict"],
            "decided again": told["fresh"]["verdict"],
            "from": f"{len(told['seeds'])} {what}" if told["seeds"] else "times measured again",
            "processor": told["environment"]["cpu"],
        }
    columns = ["published", "decided again", "from", "processor"]
    return pandas.DataFrame.from_dict(rows, orient="index", columns=columns)


def challenge(
    id: str,
    seeds: Sequence[int] = (),
    *,
    root: Path,
    workers: int | Executor | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Answer:
    """Decide a claim afresh.

    Args:
        id: the claim's.
        seeds: of the runs or the draws; default: as many runs as the plan asks for once the spread
            of the first ones is known (to see where arms stand, as were published), five draws.
        root: the folder of the fresh runs; called again, it goes on from them.
        workers, progress: as in `carry_out`.

    Raises:
        ClaimError: there is no such claim, it has no check, what decides it is not published or
            cannot be measured here, or a run failed; then the message names its log.
        ValueError: a seed is given twice, chose the learning rates or has published runs, or a
            benchmark got seeds.
    """
    claim = registry.get(id)
    published = Stored().finding(claim)
    verdict = NOT_YET_TESTED if claim.check is None else published.verdict
    if verdict in (NOT_YET_TESTED, EXPLORATORY):
        raise ClaimError(f"claim {id!r} is {verdict}: there is no verdict to challenge")
    if id in experiments.ROWS or id in LEVELS:
        fresh = _experiment(id, tuple(seeds), root, workers, progress)
        return Answer(claim, published, *fresh)
    if claim.kind == "experiment":
        if seeds:
            raise ValueError(f"seeds: claim {id!r} rests on times, which have none; leave them out")
        return Answer(claim, published, _benchmark(claim, root, progress))
    draws = tuple(seeds) or DRAWS
    found = [registry.decide(id, seed) for seed in draws]
    other = [one for one in found if one.verdict != published.verdict]
    return Answer(claim, published, (other or found)[0], draws)


def _experiment(id: str, seeds: tuple[int, ...], root: Path, workers, progress):
    """The finding on fresh runs of the arms that decide it, their seeds and differences."""
    if id in LEVELS:
        level = LEVELS[id]
        experiment, rows = level.experiment(), ()
        plan, arms = experiment.comparisons, level.arms
    else:
        experiment, plan, said, rows = experiments.ROWS[id]
        rows = [*(row for row in plan.rows if row.name in said.given), *rows]
        arms = tuple(dict.fromkeys(arm for row in rows for arm in row.arms))
    there = published_runs(experiment.name, plan.profile)
    staged = bool(rows) and not seeds
    if not seeds:
        made = {run.config["seed"] for run in there if run.config["arm"] == arms[0]}
        count = len(experiment.profile(plan.profile).seeds if staged else made)
        seeds = tuple(range(FIRST, FIRST + count))
    if known := sorted({run.config["seed"] for run in there} & {*seeds}):
        raise ValueError(
            f"seeds: {', '.join(map(str, known))} have published runs; give seeds that nobody has "
            "run, or leave them out"
        )
    sweep = Sweep(experiment.name, plan.profile, arms, seeds, staged=staged)
    outcome = carry_out(sweep, workers=workers, root=root, progress=progress)
    for failure in outcome.failed.values():
        reason = " ".join(failure.reason.split())
        raise ClaimError(f"{failure.config.arm} failed: {reason} (log: {failure.log})")
    found = sweep.verdicts(outcome.done)
    seeds = tuple(sorted({*found.frame.seed.tolist()}))
    if id in LEVELS:
        return LEVELS[id].finding(found), seeds, None
    finding = experiments.finding(said, experiments.ROWS[id][3], found)
    values = {row.name: difference(found.frame, row.contrast).to_dict() for row in rows}
    return finding, seeds, values


def _benchmark(claim: Claim, root: Path, progress) -> Finding:
    """The finding on what is measured here, now."""
    from layernorm.lab.benchmarks.measure import run

    cases = _cases(claim)
    for number, (case, _) in enumerate(run(cases, root), 1):
        if progress is not None:
            progress(number, len(cases), case.benchmark)
    with records.only_own(root):
        return claim.check()


def _cases(claim: Claim) -> Sequence[Any]:
    """Return the benchmark cases that a claim about times rests on."""
    from layernorm.lab.benchmarks import compiling, packed, training
    from layernorm.lab.benchmarks.recurrent.plan import plan as recurrent

    where = claim.id.partition("/")[2]
    if where.endswith("gpu"):
        raise ClaimError(f"claim {claim.id!r} needs a machine with a GPU; `make bench-gpu` there")
    if where == "packed_cpu":
        return packed.plan(profile="cpu")
    if where == "compile_cpu":
        return compiling.plan(profile="cpu")
    if claim.chapter == "11":
        return recurrent(mode="training", huge_pages="off", with_memory=False, profile="cpu")
    return training.plan("mlp" if where == "mnist" else None, "cpu", False, "cpu")
