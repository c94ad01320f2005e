"""What is fixed before a study's runs, and the two steps that follow it: tune, then run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from layernorm.lab import records
from layernorm.lab.experiments.contrasts import Comparisons
from layernorm.lab.experiments.studies import digit_rows, sequences, training

TUNING_SEED = 1000
NOT_PLANS = ("digit_rows", "planning", "sequences", "training", "__main__")

TRAINERS = {module.Config: module for module in (digit_rows, sequences, training)}
Config = digit_rows.Config | sequences.Config | training.Config


def train(config: Config, profile: str = "book") -> records.Record:
    """One run, a configuration in, a record out: by the module that its type comes from."""
    return TRAINERS[type(config)].train(config, profile)


@dataclass(frozen=True)
class Plan:
    """A study, fixed before its recorded runs.

    `arms` maps an arm's name to its `Config` options. `rate_of` names, for an arm that is not
    tuned, the arm whose learning rate it takes (a study that changes one thing and keeps the
    rate). `primary` is the metric verdicts are given on (lower is better), `margin` the difference
    too small to matter, in the metric's unit. `tuned_on` is the final metric, of the validation
    examples, whose lowest value chooses a learning rate: one that rewards what `primary` measures.
    `configuration` is the class of its runs' configurations (one of `TRAINERS`).
    """

    name: str
    question: str
    arms: Mapping[str, Mapping]
    primary: str
    rate_of: Mapping[str, str] = field(default_factory=dict)
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tuned_on: str = "validation_nll"
    configuration: type[Config] = training.Config
    comparisons: Comparisons = field(default_factory=Comparisons)

    def __post_init__(self) -> None:
        if "validation" not in self.tuned_on:
            raise ValueError(
                f"tuned_on must be a metric of the validation examples, got {self.tuned_on!r}"
            )

    def profile(self, name: str) -> Plan:
        """Arms and seeds, which are those of every profile."""
        return self

    def config(self, arm: str, seed: int, learning_rate: float, **options) -> Config:
        """The configuration of one run of an arm; `ValueError` for an unknown arm."""
        if arm not in self.arms:
            raise ValueError(f"{self.name} has no arm {arm!r}: expected one of {list(self.arms)}")
        options = dict(self.arms[arm]) | options
        named = {"seed": seed, "learning_rate": learning_rate}
        return self.configuration(self.name, arm, **named, **options)


@cache
def plans() -> dict[str, Plan]:
    """Every plan, by name: one file each in this folder."""
    import layernorm.lab.experiments.studies as folder

    names = [m.name for m in iter_modules(folder.__path__) if m.name not in NOT_PLANS]
    found = [import_module(f"layernorm.lab.experiments.studies.{name}").PLAN for name in names]
    return {p.name: p for p in found}


def plan(name: str) -> Plan:
    """The plan of that name; `ValueError` lists the known ones."""
    if name not in plans():
        raise ValueError(f"unknown study {name!r}: expected one of {sorted(plans())}")
    return plans()[name]


def tune(study: Plan, arm: str) -> list[records.Record]:
    """Train an arm at every learning rate, with a seed used for nothing else.

    If the best rate (lowest `tuned_on`) lies at an edge of the grid, the grid grows there, by the
    grid's own factor, at most three times.
    """
    rates = sorted(study.learning_rates)
    runs = {rate: train(study.config(arm, TUNING_SEED, rate), "tuning") for rate in rates}
    for _ in range(3):
        best = best_rate(runs.values(), study.tuned_on)
        if best == min(runs):
            extra = min(runs) ** 2 / sorted(runs)[1]
        elif best == max(runs):
            extra = max(runs) ** 2 / sorted(runs)[-2]
        else:
            break
        extra = float(f"{extra:.2g}")
        runs[extra] = train(study.config(arm, TUNING_SEED, extra), "tuning")
    return list(runs.values())


def best_rate(tuning: Iterable[records.Record], metric: str) -> float:
    """The learning rate whose run has the lowest final value of the metric."""
    best = min(tuning, key=lambda record: record.result["final"][metric])
    return best.config["options"]["learning_rate"]


def tuned(study: Plan) -> dict[str, float]:
    """Each arm's learning rate, from the published tuning runs."""
    frame = records.load(study.name, profile="tuning")
    final = frame[(frame.metric == study.tuned_on) & frame.step.isna()]
    rates = {}
    for arm in study.arms:
        rows = final[final.arm == study.rate_of.get(arm, arm)]
        if rows.empty:
            raise ValueError(
                f"{study.name} has no tuning runs of arm {arm!r}; "
                f"run `python -m layernorm.lab.experiments.studies {study.name}`"
            )
        rates[arm] = rows.loc[rows.value.idxmin(), "options"]["learning_rate"]
    return rates


def run(
    study: Plan,
    rates: Mapping[str, float] | None = None,
    arms: Sequence[str] | None = None,
    **options,
) -> list[records.Record]:
    """Train the arms over the plan's seeds at their tuned rates: one record a run.

    `rates` defaults to the published tuning, `arms` to all; `options` override the plan (a
    chapter that shows a shorter run says so). Progress goes to a bar on a terminal.
    """
    from tqdm import tqdm

    rates = tuned(study) if rates is None else rates
    todo = [(arm, seed) for arm in arms or study.arms for seed in study.seeds]
    return [
        train(study.config(arm, seed, rates[arm], **options))
        for arm, seed in tqdm(todo, desc=study.name, disable=None, leave=False)
    ]
