"""The runs that a sweep still needs: a pure function of the plan and of the runs done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, sqrt
from pathlib import Path
from statistics import fmean, stdev

from layernorm.lab import records
from layernorm.lab.experiments import NAMES, get
from layernorm.lab.experiments.compare import EXPLORED, Verdicts
from layernorm.lab.experiments.contrasts import Comparisons
from layernorm.lab.experiments.experiment import TUNING_SEED, Config, Experiment, Profile, known
from layernorm.lab.records import Record

Rates = Mapping[str, list[float]]  # by arm: its own, the next best one; empty before they are known
Tried = Mapping[str, Collection[float]]  # by arm
EXTENSIONS = 6  # how often a grid of learning rates grows where an edge wins


@dataclass(frozen=True)
class Sweep:
    """An experiment's arms over its seeds, at the learning rates tuned for them.

    Runs of the tuning are kept in the profile `<profile>_tuning`, those that show that an arm can
    learn a few examples by heart in `<profile>_overfit`, those at a rate that tuning cannot tell
    from the best in `<profile>_next_best`. Seeds are planned in two stages where the profile says
    so, of other seeds only if `staged`. `arms` and `seeds` default to the plan's; `options`
    override it for every run; a `learning_rate` among them leaves nothing to tune.
    `by_heart=False`: without the runs by heart.

    Raises `ValueError` for an unknown experiment, profile, arm or option, a value that does not
    fit, an arm or seed that is given twice, and a seed of the tuning.
    """

    experiment: str
    profile: str
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    by_heart: bool = True
    staged: bool = False

    def __post_init__(self) -> None:
        for arm in self.arms:
            known(f"arm of profile {self.profile!r}", arm, dict.fromkeys(self.scale.arms))
        object.__setattr__(self, "arms", tuple(self.arms) or self.scale.arms)
        object.__setattr__(self, "seeds", tuple(self.seeds) or self.scale.seeds)
        for name, given in (("arms", self.arms), ("seeds", self.seeds)):
            if len(set(given)) < len(given):
                raise ValueError(f"{name} must differ, got {', '.join(map(str, given))}")
        if tuning := set(self.seeds) & {TUNING_SEED, *self.scale.tuning_seeds}:
            raise ValueError(f"seed {min(tuning)} chooses the learning rates; take another one")
        for arm in self.arms:
            for seed in self.seeds:
                self.config(arm, seed, 1e-3)
            if self.by_heart:
                self._few(arm, 1e-3)

    @cached_property
    def plan(self) -> Experiment:
        return get(self.experiment)

    @cached_property
    def scale(self) -> Profile:
        return self.plan.profile(self.profile)

    @property
    def compared(self) -> Comparisons:
        return self.plan.compared(self.profile)

    @cached_property
    def _made(self) -> dict[tuple, Config]:
        """The configurations that were asked for, which are checked once."""
        return {}

    @property
    def first(self) -> int | None:
        """The number of seeds of the first stage, where there are two."""
        staged = self.staged or self.seeds == self.scale.seeds
        return self.scale.first if staged else None

    def config(self, arm: str, seed: int, rate: float, **options: object) -> Config:
        asked = arm, seed, rate, repr(options)
        if asked not in self._made:
            values = {**self.options, "learning_rate": rate, **options}
            self._made[asked] = self.plan.config(self.profile, arm, seed, **values)
        return self._made[asked]

    def _beside(self, kind: str, arm: str, seed: int, rate: float, **options: object) -> Config:
        """A configuration of the profile `<profile>_<kind>`."""
        asked = kind, arm, seed, rate, repr(options)
        if asked not in self._made:
            one = self.config(arm, seed, rate, **options)
            self._made[asked] = one.in_profile(f"{self.profile}_{kind}")
        return self._made[asked]

    def tuned_as(self, arm: str) -> str:
        """The arm whose learning rate this one takes: its own, unless the plan says another."""
        return self.plan.rate_of.get(arm, arm)

    def _few(self, arm: str, rate: float) -> Config:
        return self._beside("overfit", arm, TUNING_SEED, rate, **self.plan.by_heart(arm))

    def _tuning(self, arm: str, seed: int, rate: float) -> Config:
        whole = self.config(arm, seed, rate)
        shorter = {
            name: max(1, round(self.scale.tuning_share * getattr(whole.options, name)))
            for name in ("updates", "evaluations")
        }
        return self._beside("tuning", arm, seed, rate, **shorter)

    def _tuning_seeds(self, arm: str) -> tuple[int, ...]:
        """All, or one if seeds are planned and no primary arm takes this one's rate."""
        primary = map(self.tuned_as, self.compared.primary_arms())
        every = self.scale.first is None or arm in primary
        return self.scale.tuning_seeds[: None if every else 1]

    def _tried(self, done: Mapping[str, Record]) -> Tried:
        """The learning rates of the tuning runs that are done; it takes a look at every run."""
        tried: dict[str, set[float]] = {}
        for run in done.values():
            if run.config["profile"] == f"{self.profile}_tuning":
                rates = tried.setdefault(run.config["arm"], set())
                rates.add(run.config["options"]["learning_rate"])
        return tried

    def _tuned(
        self, done: Mapping[str, Record], arm: str, tried: Tried
    ) -> dict[float, list[float]]:
        """The learning rates that were tried with all tuning seeds, with what judges each."""
        found = {}
        for rate in sorted({*self.scale.learning_rates, *tried.get(arm, ())}):
            keys = [self._tuning(arm, seed, rate).key() for seed in self._tuning_seeds(arm)]
            if all(key in done for key in keys):
                found[rate] = [metric(done[key], self.plan.tuned_on) for key in keys]
        return found

    def rates(self, done: Mapping[str, Record], arm: str) -> list[float]:
        """The arm's learning rate, then, where seeds are planned, the next best one if it is within
        one standard error of the seeds' differences; empty while tuning is not done."""
        return self._rates(done, arm, self._tried(done))

    def _rates(self, done: Mapping[str, Record], arm: str, tried: Tried) -> list[float]:
        if not self.scale.learning_rates or "learning_rate" in self.options:
            default = self.plan.config(self.profile, arm, 0, **self.options)
            return [default.options.learning_rate]
        values = self._tuned(done, self.tuned_as(arm), tried)
        if self._more_rates(values):
            return []
        rate, *others = ranked(values)
        if self.scale.first is None or not others or len(values[rate]) < 2:
            return [rate]
        apart = [b - a for a, b in zip(values[rate], values[others[0]], strict=True)]
        tied = all(map(isfinite, apart)) and fmean(apart) <= stdev(apart) / sqrt(len(apart))
        return [rate, others[0]] if tied else [rate]

    def rate(self, done: Mapping[str, Record], arm: str) -> float | None:
        """The arm's learning rate; None while its tuning is not done."""
        return next(iter(self.rates(done, arm)), None)

    def _more_rates(self, values: Mapping[float, list[float]]) -> list[float]:
        """Learning rates that still have to be tried: those of the grid, then one beyond its edge
        as long as that edge is best."""
        grid = sorted(self.scale.learning_rates)
        if missing := [rate for rate in grid if rate not in values]:
            return missing
        if len(values) >= len(grid) + EXTENSIONS or len(grid) < 2:
            return []
        rates, best = sorted(values), ranked(values)[0]
        if best == rates[0]:
            return [float(f"{rates[0] ** 2 / rates[1]:.2g}")]
        if best == rates[-1]:
            return [float(f"{rates[-1] ** 2 / rates[-2]:.2g}")]
        return []

    def wanted(self, done: Mapping[str, Record]) -> list[Config]:
        """The runs that can be started now, given those done (by key)."""
        wanted: dict[str, Config] = {}
        chosen = self._chosen(done, tried := self._tried(done))
        counts = self._counts(done, chosen)
        for arm, rates in chosen.items():
            if rates:
                configs = self._finals(arm, rates, counts[arm])
            else:
                configs = self._to_tune(done, arm, tried)
            wanted |= {key: config for config in configs if (key := config.key()) not in done}
        return list(wanted.values())

    def _to_tune(self, done: Mapping[str, Record], arm: str, tried: Tried) -> Iterator[Config]:
        source = self.tuned_as(arm)
        for rate in self._more_rates(self._tuned(done, source, tried)):
            for seed in self._tuning_seeds(source):
                yield self._tuning(source, seed, rate)

    def _finals(self, arm: str, rates: list[float], count: int) -> list[Config]:
        """An arm's runs at its rate, at the next best one, and by heart."""
        few = [self._few(arm, rates[0])] if self.plan.overfit and self.by_heart else []
        return self._best(arm, rates, count) + self._next_best(arm, rates, count) + few

    def _best(self, arm: str, rates: list[float], count: int) -> list[Config]:
        return [self.config(arm, seed, rate) for rate in rates[:1] for seed in self.seeds[:count]]

    def _next_best(self, arm: str, rates: list[float], count: int) -> list[Config]:
        if arm not in self.compared.primary_arms():
            return []
        return [
            self._beside("next_best", arm, seed, rate)
            for rate in rates[1:]
            for seed in self.seeds[:count]
        ]

    def _chosen(self, done: Mapping[str, Record], tried: Tried | None = None) -> Rates:
        """Each arm's learning rates, as `rates` gives them."""
        tried = self._tried(done) if tried is None else tried
        return {arm: self._rates(done, arm, tried) for arm in self.arms}

    def counts(self, done: Mapping[str, Record]) -> dict[str, int]:
        """The number of seeds of each arm; of the first stage, until that one is done."""
        return self._counts(done, self._chosen(done))

    def _counts(self, done: Mapping[str, Record], chosen: Rates) -> dict[str, int]:
        if self.first is None:
            return dict.fromkeys(self.arms, len(self.seeds))
        primary = self.compared.primary_arms()
        counts = {arm: self.first if arm in primary else EXPLORED for arm in self.arms}
        found = self._verdicts(done, counts, chosen)
        for row in found.rows.values():
            if set(row.arms) <= set(self.arms):
                count = found.count(row) or 0
                counts |= {arm: max(counts[arm], count) for arm in row.arms}
        return counts

    def runs(self, done: Mapping[str, Record]) -> list[Record]:
        """The runs that the comparison is made of, as far as they are done."""
        chosen = self._chosen(done)
        return self._done(done, self._counts(done, chosen), chosen, self._best)

    def compared_runs(self, done: Mapping[str, Record]) -> list[Record]:
        """Those of `runs`, and those at next best rates, which may decide otherwise."""
        chosen = self._chosen(done)
        counts = self._counts(done, chosen)
        best = self._done(done, counts, chosen, self._best)
        return best + self._done(done, counts, chosen, self._next_best)

    def used(self, done: Mapping[str, Record]) -> Iterator[Record]:
        """All runs that the comparison rests on, as far as they are done."""
        chosen = self._chosen(done)
        yield from self._done(done, self._counts(done, chosen), chosen, self._finals)
        tried = self._tried(done)
        for arm in map(self.tuned_as, self.arms):
            for rate in self._tuned(done, arm, tried):
                keys = (self._tuning(arm, seed, rate).key() for seed in self._tuning_seeds(arm))
                yield from map(done.__getitem__, keys)

    def few(self, done: Mapping[str, Record]) -> list[Record]:
        """The runs on a few examples, as far as they are done."""
        return self._few_done(done, self._chosen(done))

    def _few_done(self, done: Mapping[str, Record], chosen: Rates) -> list[Record]:
        no_matter = dict.fromkeys(self.arms, 0)
        return self._done(done, no_matter, chosen, lambda arm, rates, _: [self._few(arm, rates[0])])

    def _done(
        self,
        done: Mapping[str, Record],
        counts: Mapping[str, int],
        chosen: Rates,
        kind: Callable[[str, list[float], int], list[Config]],
    ) -> list[Record]:
        """The runs of a kind, as far as they are done."""
        configs = (
            config
            for arm, rates in chosen.items()
            if rates
            for config in kind(arm, rates, counts[arm])
        )
        return [done[key] for config in configs if (key := config.key()) in done]

    def verdicts(self, done: Mapping[str, Record]) -> Verdicts:
        """The plan's comparisons on the runs that are done."""
        chosen = self._chosen(done)
        return self._verdicts(done, self._counts(done, chosen), chosen)

    def _verdicts(
        self, done: Mapping[str, Record], counts: Mapping[str, int], chosen: Rates
    ) -> Verdicts:
        next_best = self._done(done, counts, chosen, self._next_best)
        return Verdicts(
            self.compared,
            records.tidy(self._done(done, counts, chosen, self._best)),
            records.tidy(self._few_done(done, chosen)),
            self.scale.arms,
            self.seeds,
            first=self.first,
            short_first=self.scale.short_first if self.first else None,
            next_best=records.tidy(next_best),
            tied={arm for arm, rates in chosen.items() if self._next_best(arm, rates, 1)},
            rate_of=self.plan.rate_of,
            original=self.plan.original,
        )


def ranked(values: Mapping[float, list[float]]) -> list[float]:
    """Learning rates from the lowest mean to the highest; of equals the lowest rate first."""
    return sorted(sorted(values), key=lambda rate: fmean(values[rate]))


def metric(run: Record, name: str) -> float:
    """A final metric of a run. Raises `RecordError`, with the run's names, if it lacks it."""
    final = run.result["final"]
    if name not in final:
        which = " ".join(str(run.config[part]) for part in ("experiment", "profile", "arm"))
        raise records.RecordError(
            f"the record of {which}, seed {run.config['seed']}, has no final metric {name!r}, only "
            f"{', '.join(final)}; delete {records.path(run.config)} (or the published run) and "
            "make it again"
        )
    return final[name]


def finished(
    experiment: str, root: str | Path | None = None, *, stale: bool = True
) -> dict[str, Record]:
    """All runs of an experiment that are done, own and published, by `Config.key`; with
    `stale=False` only those whose code has not changed since."""
    done = _by_key(records.runs(experiment, root=root))
    return {key: run for key, run in done.items() if stale or not records.stale(run)}


def used(experiment: str, runs: Iterable[Record]) -> set[str]:
    """The keys of those runs of an experiment that its plans rest on."""
    if experiment not in NAMES:
        return set()
    done = _by_key(runs)
    plans = (Sweep(experiment, profile) for profile in get(experiment).profiles)
    return {run.key for plan in plans for run in plan.used(done)}


def _by_key(runs: Iterable[Record]) -> dict[str, Record]:
    return {records.key({**run.config, "data": None}): run for run in runs}
