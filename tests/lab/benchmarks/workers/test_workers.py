"""The benchmark of shared updates and of sweeps: what is timed is right, what is counted is so."""

import contextlib
from concurrent.futures import Executor, Future
from dataclasses import replace

import pytest
import torch
from lab.benchmarks.benching import files, ticking
from typed import layernorm

from layernorm.lab.analysis import parallel
from layernorm.lab.benchmarks import workers
from layernorm.lab.benchmarks.measure import MEASURED, case, measure, resume
from layernorm.lab.benchmarks.workers import runs, updates
from layernorm.lab.experiments import data_parallel

SMALL = (8, 64, 6, 5, 10)
PARAMETERS = 64 * 6 + 6 * 5 + 2 * (6 + 5) + 5 * 10 + 10  # gains and biases instead of biases
FEW = {"rounds": 6, "sample_seconds": 1e-6}


@pytest.fixture(scope="module")
def two():
    with parallel.crew(2) as crew:
        yield crew


def told(two, kind):
    return two.ask(2, updates.first_update, f"{kind}/2", SMALL)


def test_what_two_workers_hand_to_each_other(two):
    """One operation for each parameter; synchronized, one more a layer forward and backward, of
    two numbers a unit."""
    layer, batch, synchronized = (told(two, kind)[0] for kind in updates.KINDS if kind != "none")
    assert sum(layer.sent) == sum(batch.sent) == 4 * PARAMETERS
    assert len(layer.sent) == 8
    more = sorted(synchronized.sent)
    for size in layer.sent:
        more.remove(size)
    assert more == sorted(2 * [2 * 4 * 6, 2 * 4 * 5])


@pytest.mark.parametrize("kind", updates.KINDS)
def test_two_workers_have_the_gradient_of_one(two, kind):
    verdict = updates.judge(told(two, kind), f"{kind}/2", SMALL)
    assert (verdict.wrong, verdict.error < 0.5) == ("", True)


def test_the_parts_of_a_batch_have_statistics_of_their_own(two):
    """By another kind's gradient, or by weights that differ, the gate is closed."""
    own = told(two, "batch")
    assert "off by" in updates.judge(own, "synchronized/2", SMALL).wrong
    other = replace(own[1], weights=own[1].weights + 1e-12)
    assert "weights differ" in updates.judge([own[0], other], "batch/2", SMALL).wrong


def test_shared_updates_are_timed_and_recorded(two, monkeypatch, folders):
    """By the two processes that are there already."""
    kept = {"crews": {2: two}, "implementations": ("layer/2", "batch/2", "synchronized/2")}
    monkeypatch.setattr(workers.UpdatesCase, "setting", case.Case.setting)
    shared = workers.UpdatesCase("digits", SMALL, profile="mine", **kept, **FEW)
    rows = measure(shared, ticking())
    assert [row.status for row in rows] == [MEASURED] * 3
    assert [row.options["operations"] for row in rows] == [8, 8, 12]
    apart = [row.options["apart"] for row in rows]
    assert max(apart[0], apart[2]) < updates.EXACT
    assert apart[1] > 0.01
    for row in rows:
        resume.records.save(resume.record_of(row, "mine", shared.depends_on(row.implementation)))
    again = workers.recorded("workers", "mine")
    assert [row.implementation for row in again] == list(shared.implementations)
    assert again[2].options["bytes"] == rows[2].options["bytes"] == 4 * (PARAMETERS + 4 * 11)


def row(name, seconds, **fields):
    shape = SMALL if "/" in name and name.partition("/")[0] in updates.KINDS else (4,)
    blank = (workers.UpdatesCase("digits", SMALL) if shape == SMALL else
             workers.RunsCase("runs", (4,), implementations=("alone",))).blank(name)  # fmt: skip
    counts = {"operations": 1, "bytes": 2000, "apart": 0.1}
    return replace(blank, seconds=seconds, options={**blank.options, **counts}, **fields)


def test_the_tables():
    ends = {"ratio_low": 0.4, "ratio_high": 1.2}
    one = {"ratio": 2.0, "ratio_low": 1.8, "ratio_high": 2.2}
    rows = [
        row("batch/1", 0.02, **one),
        row("synchronized/2", 0.016, ratio=1.6, ratio_low=1.5, ratio_high=1.7),
    ]
    rows += [row("layer/2", 0.01, ratio=1.0, **ends)]
    rows += [replace(row("batch/2", 0.1, ratio=10.0, **ends), shape=(16, *SMALL[1:]))]
    rows += [row("none/1", 0.02), row("none/2", 0.01, ratio=1.0, **ends)]
    rows += [row("alone", 0.2, ratio=1.0), row("pool/1", 0.22, ratio=1.1, **ends)]
    rows += [row("pool/2", 0.1, ratio=0.5, **ends)]
    of_updates, of_sweeps = workers.tables(rows)
    assert [line[:4] for line in of_updates.lines] == [
        ["8", "batch/1", "20.0", "1"],
        ["8", "synchronized/2", "16.0", "1.25 [1.06, 1.47]"],  # over batch normalization by one
        ["8", "layer/2", "10.0", ""],  # nothing to compare with
        ["16", "batch/2", "100.0", ""],  # nor with this batch
        ["8", "none/1", "20.0", ""],
        ["8", "none/2", "10.0", ""],  # one worker's time is not compared with the baseline's
    ]
    assert [line[1:4] for line in of_sweeps.lines] == [
        ["alone", "50.0", ""],
        ["pool/1", "55.0", "5.0"],
        ["pool/2", "25.0", ""],
    ]


def test_a_speedup_is_taken_within_each_process():
    """Where one process was slower, both of its times were."""
    one = row("batch/1", 0.02, ratio=2.0, ratios=(2.0, 4.0, 2.0, 4.0, 2.0, 4.0))
    two = row("batch/2", 0.01, ratio=1.0, ratios=(1.0, 2.0, 1.0, 2.0, 1.0, 2.0))
    (table,) = workers.tables([one, two])
    assert [line[3] for line in table.lines] == ["1", "2.00 [2.00, 2.00]"]


class Here(Executor):
    """An executor of this process."""

    wrong = False

    def submit(self, work, config):
        future = Future()
        record = work(config)
        final = {name: 2 * value for name, value in record.result["final"].items()}
        result = {**record.result, "final": final} if self.wrong else record.result
        future.set_result(replace(record, result=result))
        return future


@pytest.mark.parametrize("wrong", [False, True])
def test_a_sweep_is_timed_if_its_runs_are_those_made_alone(wrong, monkeypatch):
    monkeypatch.setattr(Here, "wrong", wrong)
    engine = runs.Engine("concurrent", lambda workers: contextlib.nullcontext(Here()))
    monkeypatch.setitem(runs.ENGINES, "pool", engine)
    swept = workers.RunsCase("runs", (2,), implementations=("alone", "pool/1"), **FEW)
    alone, pool = measure(swept, ticking())
    assert alone.status == MEASURED
    assert (pool.status == MEASURED) == (not wrong)
    assert ("other results" in pool.status) == wrong
    assert not swept.opened


def test_engines_that_are_not_installed_are_left_out(monkeypatch):
    missing = {"ray", "distributed"}
    monkeypatch.setattr(runs.importlib.util, "find_spec",
                        lambda name: None if name in missing else name)  # fmt: skip
    assert runs.here() == ("alone", "pool/1", "pool/2", "joblib/1", "joblib/2")


def test_workers_that_do_not_average_are_named(monkeypatch):
    """One of two, in this process: its gradient is that of its part."""
    monkeypatch.setattr(data_parallel.Shared, "_mean", lambda self, x: None)
    mine = updates.first_update(parallel.Group(0, 2), "layer/2", SMALL)
    assert "the gradient is off by" in updates.judge([mine], "layer/2", SMALL).wrong
    assert mine.gradient.dtype == torch.float64


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((9, 64, 6, 10), "shape: expected a batch of at most 1197 that 4 divides"),
        ((8, 63, 6, 10), "got (8, 63, 6, 10)"),
        ((8, 64, 10), "hidden units"),
        ((1200, 64, 6, 10), "at most 1197"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shape, message):
    with pytest.raises(ValueError, match="shape: expected") as error:
        measure(workers.UpdatesCase("digits", shape))
    assert message in str(error.value)


@pytest.mark.parametrize("shape", [(0,), (1, 2), (10_001,)])
def test_sweeps_of_no_or_too_many_runs_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape: expected \(runs,\), from 1 to 10,000"):
        measure(workers.RunsCase("runs", shape))


def test_the_command(monkeypatch, folders):
    monkeypatch.setattr(runs, "RUNS", 1)
    monkeypatch.setattr(runs, "NAMES", ("alone",))
    words = ["bench", "workers", "--what", "sweeps", "--quick", "--profile", "mine"]
    done = layernorm(*words)
    assert done.exit_code == 0, done.output
    assert "overhead, ms/run" in done.output
    assert len(files(folders / "runs" / "bench_sweeps" / "mine")) == 1
    wrong = layernorm("bench", "workers", "--what", "sweep")
    assert "did you mean 'sweeps'?" in str(wrong.exception) + wrong.output
