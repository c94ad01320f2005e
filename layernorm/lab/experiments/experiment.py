"""An experiment: arms, options, profiles and the plan, fixed before its recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from layernorm.lab import records
from layernorm.lab.experiments.contrasts import Comparisons
from layernorm.lab.experiments.options import CommonOptions, make
from layernorm.lab.nearest import hint

TUNING_SEED = 1000  # used for nothing else
TWO_STAGES: dict[str, Any] = {  # seeds of a plan whose first ten say how many follow
    "seeds": tuple(range(100, 120)),
    "tuning_seeds": (TUNING_SEED, 1001, 1002),
    "first": 10,
}


class Task(Protocol):
    """The task that one run trains, made from its options and seed.

    `loss(step)` is the loss of the batch of that update, counted from 1; which cases that batch
    has depends on the seed and the step alone, so that an interrupted run can go on. `evaluate()`
    gives the metrics by name, those of test data called `test_…`; the model is then in evaluation
    mode. `final()` gives what is measured once, at the end.
    """

    model: nn.Module

    def loss(self, step: int) -> Tensor: ...
    def evaluate(self) -> dict[str, float]: ...
    def final(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Profile:
    """The size at which an experiment is run.

    `options` hold for all arms, `of_arm` for one. `arms`: those that are run, by default all.
    `learning_rates`: the grid over which arms are tuned; empty: they are not, and take
    `Options.learning_rate`. Tuning runs make a share `tuning_share` of the updates, with each of
    `tuning_seeds`.

    With `first`, seeds are planned in two stages: every arm of a primary comparison has the first
    so many, whose spread says how many of the others follow (`compare.Verdicts.count`); where
    tuning cannot tell its best rate from the next one, it has them at both. Arms of exploratory
    comparisons alone have one tuning seed and at most five others. `short_first`: a first stage
    that was shorter when the runs began; the larger of both numbers of seeds holds.

    `comparisons`: its own, where it asks something else than the experiment's main profile.
    """

    arms: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    of_arm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    learning_rates: tuple[float, ...] = ()
    tuning_seeds: tuple[int, ...] = (TUNING_SEED,)
    tuning_share: float = 1.0
    first: int | None = None
    short_first: int | None = None
    comparisons: Comparisons | None = None


@dataclass(frozen=True)
class Original:
    """The paper's own experiment, for the box at the head of its chapter.

    `updates`: of a run, on batches of `batch_size`, or that they are not said, and where. `ours`:
    our data. `shown`: our setup, with the options in braces. `rows`: the comparisons that answer
    the claim. `network`: makes the network of a run from its options; the paper's is that of our
    profile `paper`, and `counted` tells how its parameters are counted, unless `parameters` tells
    how many it has. `by`: whose experiment it is, where it is not the paper's.
    """

    claim: str
    data: str
    ours: str
    setup: str
    updates: int | str
    seeds: str
    result: str
    shown: str
    rows: tuple[str, ...]
    network: Callable[[Any], nn.Module]
    batch_size: int | None = None
    counted: str = "counted in our code"
    parameters: str = ""
    by: str = "the paper"

    def weights(self, options: Any) -> int:
        """The number of parameters of the network of a run with these options."""
        with torch.device("meta"):
            return sum(p.numel() for p in self.network(options).parameters())

    def share(self, options: Mapping[str, Any]) -> float | None:
        """The updates of a run as a fraction of the paper's, or, in batches of another size, its
        epochs as one of the paper's; None where the paper does not say."""
        if isinstance(self.updates, str):
            return None
        size = options["batch_size"] / self.batch_size if self.batch_size else 1
        return options["updates"] * size / self.updates


@dataclass(frozen=True)
class Experiment:
    """An experiment, with everything that its plan fixes.

    Args:
        arms: the options that make each arm what it is; a plain arm is called after its method.
        task: makes what a run trains. data: the hash of the data that options choose.
        primary: the final metric that tables show, lower is better.
        select: the metric of validation examples whose lowest value says at which evaluation
            `best_test_…` is read. tuned_on: the final metric that chooses a learning rate, by
            default the mean of that one over the curve, so that fast learning counts.
        averaged: the metrics whose curve's mean is a final metric, `mean_…`.
        comparisons: what is compared, with the margins and the claims that are decided by it, on
            its `profile`, and on others that have none of their own.
        rate_of: for an arm that is not tuned, the arm whose learning rate it takes.
        overfit: options of the check that an arm can learn a few examples by heart;
            overfit_of_arm: those of one arm.
        depends_on: functions and classes that decide the outcome and that `task` does not reach.
        trainer: what makes the updates, `trainer.Trainer` if None; it belongs to `depends_on`, too.
        graphed: what makes them as graphs on a GPU, if there is a trainer; else `graphed.Graphed`.
        original: the paper's experiment that this one repeats.
    """

    name: str
    question: str
    options: type[CommonOptions]
    arms: Mapping[str, Mapping[str, Any]]
    profiles: Mapping[str, Profile]
    task: Callable[[Any, int, torch.device], Task]
    data: Callable[[Any], str | None]
    primary: str
    select: str
    tuned_on: str = ""
    averaged: tuple[str, ...] = ()
    comparisons: Comparisons = field(default_factory=Comparisons)
    rate_of: Mapping[str, str] = field(default_factory=dict)
    overfit: Mapping[str, Any] = field(default_factory=dict)
    overfit_of_arm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    depends_on: tuple[Any, ...] = ()
    trainer: Callable[..., Any] | None = None
    graphed: Callable[..., Any] | None = None
    original: Original | None = None

    def __post_init__(self) -> None:
        if not self.tuned_on:
            object.__setattr__(self, "tuned_on", f"mean_{self.select}")
        tuned_on = self.tuned_on.removeprefix("mean_")
        for name, metric in (("select", self.select), ("tuned_on", tuned_on)):
            if not metric.startswith("validation"):
                raise ValueError(f"{name} must be a metric of validation examples, got {metric!r}")
        if tuned_on != self.tuned_on and tuned_on not in self.averaged:
            raise ValueError(f"averaged must hold {tuned_on!r}, which learning rates depend on")
        every = tuple(self.arms)
        profiles = {n: replace(p, arms=p.arms or every) for n, p in self.profiles.items()}
        object.__setattr__(self, "profiles", profiles)
        for profile in profiles.values():
            for arm in (*profile.arms, *profile.of_arm):
                known("arm", arm, self.arms)
        for plan in self.plans():
            for arm in (arm for row in plan.rows for arm in row.arms):
                known("arm", arm, self.arms)

    def profile(self, name: str) -> Profile:
        """Raises `ValueError` for an unknown one."""
        return self.profiles[known("profile", name, self.profiles)]

    def compared(self, profile: str) -> Comparisons:
        """The comparisons of a profile's runs."""
        return self.profile(profile).comparisons or self.comparisons

    def plans(self) -> tuple[Comparisons, ...]:
        """All comparisons, the main ones first."""
        own = (profile.comparisons for profile in self.profiles.values())
        return (self.comparisons, *(plan for plan in own if plan is not None))

    def by_heart(self, arm: str) -> dict[str, Any]:
        """The options of an arm that learns a few examples by heart."""
        return {**self.overfit, **self.overfit_of_arm.get(arm, {})}

    def config(self, profile: str, arm: str, seed: int, **options: Any) -> Config:
        """The configuration of one run; `options` override those of the arm and the profile.

        Raises `ValueError` for an unknown profile, arm or option, or a value that does not fit.
        """
        scale = self.profile(profile)
        values = {
            **scale.options,
            **self.arms[known("arm", arm, self.arms)],
            **scale.of_arm.get(arm, {}),
            **options,
        }
        return Config(self.name, profile, arm, seed, make(self.options, values))

    def document(self, config: Config) -> dict[str, Any]:
        """A configuration as its record holds it, with the hash of the data, which are read."""
        return {**config.plain(), "data": self.data(config.options)}


@dataclass(frozen=True)
class Config:
    """One run, the unit of work: plain values, free of anything that ties it to a machine."""

    experiment: str
    profile: str
    arm: str
    seed: int
    options: CommonOptions

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must be an integer from 0 to 2**31 - 1, got {self.seed!r}")

    def plain(self) -> dict[str, Any]:
        """The configuration as JSON has it, without the data's hash."""
        options = self.options.model_dump()
        return {
            "experiment": self.experiment,
            "profile": self.profile,
            "arm": self.arm,
            "method": options.pop("method"),
            "seed": self.seed,
            "options": options,
        }

    def key(self) -> str:
        """The key that matches a run and its record; it needs no data."""
        return self._key

    @cached_property
    def _key(self) -> str:
        return records.key(self.plain())

    def in_profile(self, profile: str) -> Config:
        return replace(self, profile=profile)


def known(what: str, name: str, there: Mapping[str, Any]) -> str:
    """The name, if it is there; else `ValueError` with the nearest one."""
    if name in there:
        return name
    raise ValueError(f"unknown {what} {name!r}; {hint(name, there)}")
