"""The time of one update of each arm, measured alone: the seconds of a record's curves.

The runs of a sweep share the machine, so their own clocks say little. After them, on a machine that
does nothing else, the arms take turns and each one's updates are timed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from layernorm.lab import records
from layernorm.lab.experiments import get
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.machine import device_of
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.run import deterministic, trainer_of
from layernorm.lab.experiments.trainer import Trainer

AT_ONCE = 12  # arms that are measured in turns


def seconds_per_update(
    configs: Mapping[str, Config], device: str = "auto", rounds: int = 7, updates: int = 10
) -> dict[str, float]:
    """The median, over the rounds, of the mean time of an update, made as in a run; the
    configurations take turns."""
    on = device_of(device)
    samples: dict[str, list[float]] = {name: [] for name in configs}
    experiments = {name: get(config.experiment) for name, config in configs.items()}
    with seeded(0, on), deterministic(on):
        trainers = {
            name: trainer_of(experiments[name], on, Workers())(experiments[name], config, on)
            for name, config in configs.items()
        }
        for turn in range(rounds + 1):
            for name, trainer in trainers.items():
                seconds = _timed(trainer, turn * updates, updates)
                if turn:  # the first one warms up
                    samples[name].append(seconds)
    return {name: float(np.median(taken)) for name, taken in samples.items()}


def _timed(trainer: Trainer, first: int, updates: int) -> float:
    trainer.look()
    began = time.perf_counter()
    for step in range(first + 1, first + updates + 1):
        trainer.update(step)
    trainer.look()  # waits for a GPU
    return (time.perf_counter() - began) / updates


def time_arms(
    sweep: Sweep,
    done: Mapping[str, records.Record],
    *,
    threads: int = 1,
    device: str = "auto",
) -> dict[str, float]:
    """Measure the arms whose runs were not measured alone yet, and write it into their records,
    those of next best rates included: an update takes as long at any rate.

    At most `AT_ONCE` arms are held in memory together. Returns seconds per update by arm.
    """
    runs = [run for run in sweep.compared_runs(done) if not run.timing.get("alone")]
    configs = {}
    for arm in dict.fromkeys(run.config["arm"] for run in runs):
        configs[arm] = sweep.config(arm, sweep.seeds[0], sweep.rate(done, arm))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found: dict[str, float] = {}
        for names in _parts(list(configs), AT_ONCE):
            found |= seconds_per_update({name: configs[name] for name in names}, device)
    finally:
        torch.set_num_threads(before)
    for run in runs:
        timing = {**run.timing, "seconds_per_update": found[run.config["arm"]], "alone": 1}
        records.save(replace(run, timing=timing))
    return found


def _parts(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[i : i + size] for i in range(0, len(names), size)]
