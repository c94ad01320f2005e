"""The benchmark of the experiment engine: its two loops are the same, or are not timed."""

from dataclasses import replace

import pytest
import torch

from layernorm.lab import records
from layernorm.lab.benchmarks import engine
from layernorm.lab.benchmarks.report import from_record
from layernorm.lab.benchmarks.timing import CpuTimer


class Ticking:
    """A clock that each reading moves by one second."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """A small network, and runs in the test's own folder."""
    monkeypatch.setattr(engine, "SIZES", (12, 16, 10))
    monkeypatch.setattr(engine, "CASES", 50)
    monkeypatch.setattr(engine, "data", lambda whole=engine.data: whole(50))
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path))


def quick(batch=4):
    return {
        row.implementation: row
        for row in engine.measure(batch, rounds=6, copies=2, timer=CpuTimer(Ticking()))
    }


def test_the_loops_have_the_same_losses_and_are_timed():
    rows = quick()
    assert [row.status for row in rows.values()] == ["measured"] * 3
    assert rows["engine"].error == 0
    assert 0 <= rows["bare loop, default Adam"].error < 1
    assert all(row.seconds > 0 and row.ratio == 1 for row in rows.values())
    assert rows["engine"].shape == (4, 12, 16, 10)


def test_every_copy_is_made_anew(monkeypatch):
    made, make = [], engine.SUBJECTS["engine"].make
    counted = replace(engine.SUBJECTS["engine"], make=lambda *a: made.append(a) or make(*a))
    monkeypatch.setitem(engine.SUBJECTS, "engine", counted)
    row = quick()["engine"]
    assert made == [(4, 0), (4, 0)]
    assert len(row.samples) == 12


def test_both_go_through_epochs_in_the_same_order_and_do_learn():
    bare, ours = engine.Bare(8, 0, True), engine.Engine(8, 0)
    losses = bare.losses(100)
    assert losses == [loss for _ in range(5) for loss in ours.losses(20)]
    assert sum(losses[-20:]) < sum(losses[:20]) - 1
    assert engine.Bare(8, 1, True).losses(20) != losses[:20]


def test_the_engine_is_looked_at_as_its_loop_does(monkeypatch):
    ours, looks = engine.Engine(4, 0), []
    look = ours.trainer.look
    monkeypatch.setattr(ours.trainer, "look", lambda: looks.append(ours.step) or look())
    for _ in range(130):
        ours.update()
    assert looks == [64, 128]


FAULTS = {
    "other batches": lambda batch, seed: engine.Bare(batch, seed + 1, True),
    "no step": lambda batch, seed: still(engine.Bare(batch, seed, True)),
    "one part in a million": lambda batch, seed: slightly(engine.Bare(batch, seed, True)),
    "nan": lambda batch, seed: broken(engine.Bare(batch, seed, True)),
}


def still(loop):
    loop.optimizer.step = lambda: None
    return loop


def slightly(loop):
    loop.optimizer.param_groups[0]["lr"] *= 1 + 1e-6
    return loop


def broken(loop):
    loop.model[-1].bias.data.fill_(torch.nan)
    return loop


@pytest.mark.parametrize("fault", FAULTS)
def test_a_loop_with_other_losses_is_named_and_not_timed(fault, monkeypatch):
    monkeypatch.setitem(engine.SUBJECTS, "engine", engine.Subject(FAULTS[fault]))
    rows = quick()
    assert rows["engine"].status.startswith("wrong: losses are off by")
    assert rows["engine"].seconds is None
    assert rows["bare loop"].ratio == 1
    with pytest.raises(ValueError, match="nothing is recorded: engine: wrong"):
        engine.save(list(rows.values()), "cpu")


def test_a_loop_that_fails_is_named(monkeypatch):
    def fails(batch, seed):
        raise NotImplementedError("no fused Adam")

    monkeypatch.setitem(engine.SUBJECTS, "engine", engine.Subject(fails))
    assert quick()["engine"].status == "failed: NotImplementedError: no fused Adam"


def test_the_table_and_the_records_say_the_same():
    rows = list(quick().values())
    head, *lines = engine.table(rows)
    assert head == ["batch", "loop", "ms/update", "ratio [95% interval]"]
    assert [line[1] for line in lines] == list(engine.SUBJECTS)
    assert lines[0][3] == "1.000"
    assert lines[1][3] == "1.000 [1.000, 1.000]"
    folder = engine.save(rows, "mine")
    back = {row.implementation: row for row in map(from_record, records.runs("bench_engine"))}
    assert (folder.parent.name, folder.name) == ("bench_engine", "mine")
    assert {name: row.ratio for name, row in back.items()} == dict.fromkeys(engine.SUBJECTS, 1.0)
    assert back["engine"].options["threads"] == torch.get_num_threads()
    assert records.runs("bench_engine")[0].digest.startswith("measure ")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: engine.measure(0), "batch: expected 1 to 50, got 0"),
        (lambda: engine.measure(51), "batch: expected 1 to 50, got 51"),
        (lambda: engine.measure(4, copies=0), "copies: expected at least 1, got 0"),
        (lambda: engine.measure(4, rounds=5), "rounds: expected at least 6, .* got 5"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
