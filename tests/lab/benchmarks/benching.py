"""Benchmarks so small that they take no time, and clocks that only calls move."""

from pathlib import Path

import apart
import torch

from layernorm.lab.benchmarks.measure import run
from layernorm.lab.benchmarks.measure.timing import CpuTimer
from layernorm.lab.benchmarks.norms.plan import cases

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
GPU = f"cuda:{torch.cuda.device_count()}"  # which is not there
FEW = {"rounds": 6, "sample_seconds": 1e-6}


class Clock:
    """Stands still but for what calls cost; keeps a log of them."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def costing(self, name, seconds, function=lambda: None):
        """A call that takes these seconds: a number, or a function of the calls so far."""

        def call(**inputs):
            self.log.append(name)
            self.now += seconds(self.log.count(name)) if callable(seconds) else seconds
            return function(**inputs)

        return call


class Ticking(Clock):
    """Each reading moves it by one second: a call takes 1 / repeats, whatever it does."""

    def __call__(self):
        self.now += 1.0
        return self.now


def ticking():
    return CpuTimer(Ticking())


def tiny(*sizes, name="layer", dtype="float32", mode="forward", compiled=False, **fields):
    """A plan: layer normalization of four rows, forward, or what is asked for."""
    fields = {**FEW, "profile": "trial"} | fields
    return cases([name], sizes or [(4, 32)], [dtype], [mode], CPU, compiled, **fields)


def rows_of(plan, **options):
    return [row for _, rows in run(plan, **options) for row in rows]


def timed(rows):
    return {row.implementation: row for row in rows if row.seconds is not None}


def files(folder):
    return {file.stem: file for file in folder.rglob("*.json")}


def python(script, *arguments, **options):
    """A new process with this script."""
    return apart.python("-c", script, *arguments, cwd=ROOT, **options)
