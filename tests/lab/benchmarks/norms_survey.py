"""A survey of norms so small that it takes no time, for the tests of `bench norms`."""

import torch

from layernorm.lab.benchmarks import survey
from layernorm.lab.benchmarks.plans import Case, Plan

CPU = torch.device("cpu")
GPU = f"cuda:{torch.cuda.device_count()}"  # which is not there


def tiny(*cases, **options):
    """A plan: layer normalization of four rows, forward, or these cases."""
    cases = cases or (Case("layer", 4, 32, "float32", "forward", "trial"),)
    return Plan(CPU, cases, **{"compiled": False, "rounds": 6, "sample_seconds": 1e-6} | options)


def rows_of(plan, **options):
    return [row for _, rows in survey.run(plan, **options) for row in rows]


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
    """How often each implementation is measured from now on."""
    counts, real = {}, survey.measure

    def measure(benchmark, *args, **options):
        for name in benchmark.implementations:
            counts[name] = counts.get(name, 0) + 1
        return real(benchmark, *args, **options)

    monkeypatch.setattr(survey, "measure", measure)
    return counts
