"""The runs that a sweep has left, kept as they are handed out and end."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping

from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.records import Record


class Left:
    """The runs that can be started now (`waiting`) and those that were handed out (`at_work`).

    To ask the plan takes a look at every run that is done. It is asked again when the last known
    run of an arm in a profile has ended, since a plan waits for whole groups: all tuning runs of an
    arm, all first seeds of the arms of a comparison.

    Args:
        done, failed: by key, kept by the caller, who enters a run there before `ended`.
    """

    def __init__(
        self, sweep: Sweep, done: Mapping[str, Record], failed: Collection[str] = ()
    ) -> None:
        self.sweep, self.done, self.failed = sweep, done, failed
        self.at_work: dict[str, Config] = {}
        self._ask()

    def __len__(self) -> int:
        return len(self.waiting) + len(self.at_work)

    def _ask(self) -> None:
        wanted = {config.key(): config for config in self.sweep.wanted(self.done)}
        gone = self.at_work.keys() | self.failed
        self.waiting = OrderedDict((k, c) for k, c in wanted.items() if k not in gone)
        self.open = Counter(map(_group, [*self.waiting.values(), *self.at_work.values()]))

    def start(
        self, most: int | None, busy: Callable[[Config], bool]
    ) -> Iterator[tuple[str, Config, bool]]:
        """Hand out runs until `most` are at work (None: all), those that another process is at
        last, which the third value says."""
        turns = len(self.waiting)
        for turn in range(2 * turns):
            if not self.waiting or (most is not None and len(self.at_work) >= most):
                return
            key, config = self.waiting.popitem(last=False)
            if turn < turns and busy(config):
                self.waiting[key] = config
                continue
            self.at_work[key] = config
            yield key, config, turn >= turns

    def ended(self, key: str) -> None:
        """Note that a run that was handed out is done or has failed."""
        group = _group(self.at_work.pop(key))
        self.open[group] -= 1
        if not self.open[group]:
            self._ask()


def _group(config: Config) -> tuple[str, str]:
    return config.profile, config.arm
