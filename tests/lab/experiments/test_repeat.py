"""The first updates of published runs, made again."""

import pytest

from layernorm.lab import records
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.repeat import beginnings
from layernorm.lab.experiments.sweep import carry_out


def test_a_run_begins_as_the_published_one(here, tmp_path):
    sweep = Sweep("toy", "book", ("none", "layer"))
    carry_out(sweep, root=tmp_path / "elsewhere")
    records.publish([tmp_path / "elsewhere"], folder=tmp_path / "published")
    published = records.load("toy", "book")
    parts, seeds = {"none": (10, 1), "layer": (20, 2)}, sweep.seeds[:2]
    table = beginnings(published, "toy", "test_nll", parts, seeds)
    assert table.index.tolist() == ["none", "layer"]
    for arm, (step, _) in parts.items():
        of_arm = published[(published.arm == arm) & published.seed.isin(seeds)]
        rows = of_arm[(of_arm.metric == "test_nll") & (of_arm.step == step)]
        assert table.recorded[arm] == pytest.approx(rows.value.mean())
    assert table.here.tolist() == pytest.approx(table.recorded.tolist(), abs=1e-5)
    with pytest.raises(KeyError):  # no reading there
        beginnings(published, "toy", "test_nll", {"none": (7, 1)}, seeds)
