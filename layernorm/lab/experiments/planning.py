"""The runs that a sweep still has to make, a pure function of its plan and of those done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from layernorm.lab import records
from layernorm.lab.experiments import get
from layernorm.lab.experiments.experiment import TUNING_SEED, Config, known

EXTENSIONS = 3  # how often a grid of learning rates grows where an edge wins


@dataclass(frozen=True)
class Sweep:
    """An experiment's arms over its seeds, at the learning rates tuned for them.

    Runs of the tuning are kept in the profile `<profile>_tuning`, those that show that an arm can
    learn a few examples by heart in `<profile>_overfit`. `arms` and `seeds` default to the plan's;
    `options` override it for every run; a `learning_rate` among them leaves nothing to tune.
    `by_heart=False`: without the runs by heart.

    Raises `ValueError` for an unknown experiment, profile, arm or option, a value that does not
    fit, an arm or seed that is given twice, and the seed of the tuning.
    """

    experiment: str
    profile: str
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    by_heart: bool = True

    def __post_init__(self) -> None:
        experiment = get(self.experiment)
        profile = experiment.profile(self.profile)
        for arm in self.arms:
            known(f"arm of profile {self.profile!r}", arm, dict.fromkeys(profile.arms))
        object.__setattr__(self, "arms", tuple(self.arms) or profile.arms)
        object.__setattr__(self, "seeds", tuple(self.seeds) or profile.seeds)
        for name, given in (("arms", self.arms), ("seeds", self.seeds)):
            if len(set(given)) < len(given):
                raise ValueError(f"{name} must differ, got {', '.join(map(str, given))}")
        if TUNING_SEED in self.seeds:
            raise ValueError(f"seed {TUNING_SEED} chooses the learning rates; take another one")
        for arm in self.arms:
            for seed in self.seeds:
                self.config(arm, seed, 1e-3)
            if self.by_heart:
                self.config(arm, TUNING_SEED, 1e-3, **experiment.by_heart(arm))

    def config(self, arm: str, seed: int, rate: float, **options: object) -> Config:
        values = {**self.options, "learning_rate": rate, **options}
        return get(self.experiment).config(self.profile, arm, seed, **values)

    def tuned_as(self, arm: str) -> str:
        """The arm whose learning rate this one takes: its own, unless the plan says another."""
        return get(self.experiment).rate_of.get(arm, arm)

    def finals(self, done: Mapping[str, records.Record], arm: str) -> dict[float, float]:
        """The arm's finished tuning runs: learning rate to the metric that judges it."""
        metric = get(self.experiment).tuned_on
        found = {}
        for config in self._at_all_rates(arm, done):
            if (run := done.get(config.key())) is not None:
                found[config.options.learning_rate] = run.result["final"][metric]
        return found

    def _at_all_rates(self, arm: str, done: Mapping[str, records.Record]) -> Iterator[Config]:
        """The tuning runs of the grid, and those done beyond it."""
        rates = set(get(self.experiment).profile(self.profile).learning_rates)
        for run in done.values():
            of = run.config
            if (of["profile"], of["arm"]) == (f"{self.profile}_tuning", arm):
                rates.add(of["options"]["learning_rate"])
        for rate in sorted(rates):
            yield self.config(arm, TUNING_SEED, rate).in_profile(f"{self.profile}_tuning")

    def rate(self, done: Mapping[str, records.Record], arm: str) -> float | None:
        """The arm's learning rate; None while its tuning is not done."""
        grid = get(self.experiment).profile(self.profile).learning_rates
        if not grid or "learning_rate" in self.options:
            default = get(self.experiment).config(self.profile, arm, 0, **self.options)
            return default.options.learning_rate
        finals = self.finals(done, self.tuned_as(arm))
        return None if self._more_rates(finals) else best(finals)

    def _more_rates(self, finals: Mapping[float, float]) -> list[float]:
        """Learning rates that still have to be tried: those of the grid, then one beyond its edge
        as long as that edge is best."""
        grid = sorted(get(self.experiment).profile(self.profile).learning_rates)
        if missing := [rate for rate in grid if rate not in finals]:
            return missing
        if len(finals) >= len(grid) + EXTENSIONS or len(grid) < 2:
            return []
        rates = sorted(finals)
        if best(finals) == rates[0]:
            return [float(f"{rates[0] ** 2 / rates[1]:.2g}")]
        if best(finals) == rates[-1]:
            return [float(f"{rates[-1] ** 2 / rates[-2]:.2g}")]
        return []

    def wanted(self, done: Mapping[str, records.Record]) -> list[Config]:
        """The runs that can be started now, given those done (by key)."""
        experiment = get(self.experiment)
        configs: dict[str, Config] = {}

        def want(config: Config) -> None:
            if (key := config.key()) not in done:
                configs.setdefault(key, config)

        for arm in self.arms:
            rate = self.rate(done, arm)
            if rate is None:
                source = self.tuned_as(arm)
                for each in self._more_rates(self.finals(done, source)):
                    tuning = self.config(source, TUNING_SEED, each)
                    want(tuning.in_profile(f"{self.profile}_tuning"))
                continue
            for seed in self.seeds:
                want(self.config(arm, seed, rate))
            if experiment.overfit and self.by_heart:
                want(self._few(arm, rate))
        return list(configs.values())

    def _few(self, arm: str, rate: float) -> Config:
        few = self.config(arm, TUNING_SEED, rate, **get(self.experiment).by_heart(arm))
        return few.in_profile(f"{self.profile}_overfit")

    def few(self, done: Mapping[str, records.Record]) -> list[records.Record]:
        """The runs on a few examples, as far as they are done."""
        rates = {arm: self.rate(done, arm) for arm in self.arms}
        keys = [self._few(arm, rate).key() for arm, rate in rates.items() if rate is not None]
        return [done[key] for key in keys if key in done]

    def runs(self, done: Mapping[str, records.Record]) -> list[records.Record]:
        """The runs that the comparison is made of, as far as they are done."""
        rates = {arm: self.rate(done, arm) for arm in self.arms}
        keys = (
            self.config(arm, seed, rate).key()
            for arm, rate in rates.items()
            if rate is not None
            for seed in self.seeds
        )
        return [done[key] for key in keys if key in done]


def best(finals: Mapping[float, float]) -> float:
    """The learning rate with the lowest value; of equals (all diverged) the lowest rate."""
    return min(sorted(finals), key=lambda rate: finals[rate])


def finished(experiment: str, root: str | Path | None = None) -> dict[str, records.Record]:
    """All runs of an experiment that are done, own and published, by `Config.key`."""
    return {records.key({**run.config, "data": None}): run
            for run in records.runs(experiment, root=root)}  # fmt: skip
