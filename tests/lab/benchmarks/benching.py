"""Benchmarks so small that they take no time."""

import torch

from layernorm.lab.benchmarks.measure import case, run
from layernorm.lab.benchmarks.measure.timing import CpuTimer
from layernorm.lab.benchmarks.norms.plan import cases

CPU = torch.device("cpu")
GPU = f"cuda:{torch.cuda.device_count()}"  # which is not there


class Ticking:
    """A clock that each reading moves by one second: a call takes 1 / repeats, whatever it does."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def ticking():
    return CpuTimer(Ticking())


def tiny(*sizes, name="layer", dtype="float32", mode="forward", compiled=False, **fields):
    """A plan: layer normalization of four rows, forward, or what is asked for."""
    fields = {"rounds": 6, "sample_seconds": 1e-6, "profile": "trial"} | fields
    return cases([name], sizes or [(4, 32)], [dtype], [mode], CPU, compiled, **fields)


def rows_of(plan, **options):
    return [row for _, rows in run(plan, **options) for row in rows]


def timed(rows):
    return {row.implementation: row for row in rows if row.seconds is not None}


def files(folder):
    return {file.stem: file for file in folder.rglob("*.json")}


def own_folder(folder, monkeypatch):
    """Records are written there, and none is published."""
    monkeypatch.setenv("LAYERNORM_RUNS", str(folder / "runs"))
    monkeypatch.setattr("layernorm.lab.records.published.published_folder", lambda: folder / "none")
    return folder


def count(monkeypatch):
    """The cases that are measured from now on."""
    measured, real = [], case.measure

    def measure(one, *args, **options):
        measured.append(one)
        return real(one, *args, **options)

    monkeypatch.setattr(case, "measure", measure)
    return measured
