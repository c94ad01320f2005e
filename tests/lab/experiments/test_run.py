"""One run: same seed, same bits; what it selects, stops, survives and refuses."""

import errno
import itertools
import math
import random
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lab.experiments import toy_experiment
from torch import nn

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, get, machine
from layernorm.lab.experiments.run import CHECK_EVERY, Trainer, train

pytestmark = pytest.mark.usefixtures("toy")


def config(arm="batch", seed=0, **options):
    return get("toy").config("book", arm, seed, **options)


def result(arm="batch", seed=0, **options):
    return train(config(arm, seed, **options), save=False).result


def states():
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return [(kind, keys.tolist(), *rest), torch.get_rng_state().tolist()]


def test_the_same_seed_gives_the_same_bits_whatever_the_generators_did_before():
    first = result()
    np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    assert result() == first
    assert result(seed=1) != first
    assert result(noise=0.0) != first


def test_a_run_leaves_all_generators_as_they_were():
    before = states()
    result()
    assert states() == before
    with pytest.raises(RuntimeError, match="the toy is broken"):
        result("broken")
    assert states() == before


def test_each_source_of_randomness_follows_the_seed_and_goes_on_as_before():
    before = [random.getstate(), *states()]
    drawn = []
    for seed in (0, 0, 1):
        with checkpoint.seeded(seed, torch.device("cpu")):
            drawn.append((random.random(), np.random.rand(), torch.rand(()).item()))  # noqa: NPY002
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])
    assert [random.getstate(), *states()] == before
    torch.manual_seed(0)
    assert torch.rand(()).item() == drawn[0][2]


def test_curves_are_read_at_the_start_and_evenly_and_batch_loss_is_the_mean_in_between():
    toy = replace(toy_experiment.EXPERIMENT, data=lambda options: None)
    trainer = Trainer(toy, config("none", noise=0.0), torch.device("cpu"))
    torch.manual_seed(0)  # the toy is made anew: same start, same dropout
    got = result("none", noise=0.0, updates=10, evaluations=4)
    assert got["curves"]["test_nll"]["step"] == [0, 2, 5, 8, 10]
    assert got["curves"]["batch_loss"]["step"] == [2, 5, 8, 10]
    with checkpoint.seeded(0, torch.device("cpu")):
        trainer = Trainer(toy, config("none", noise=0.0), torch.device("cpu"))
        for step in range(1, 11):
            trainer.update(step)
        losses = trainer.look()
    ends = itertools.pairwise([0, 2, 5, 8, 10])
    means = [sum(losses[a:b]) / (b - a) for a, b in ends]
    assert got["curves"]["batch_loss"]["value"] == pytest.approx(means, rel=1e-12)
    assert trainer.look() == []


def test_an_update_is_adams_on_the_loss_of_the_batch():
    trainer = Trainer(get("toy"), config("none", learning_rate=0.1), torch.device("cpu"))
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.update(1)
    steps = [(p - b) / -0.1 for p, b in zip(trainer.parameters, before, strict=True)]
    for step, p in zip(steps, trainer.parameters, strict=True):
        used = p.grad.abs() > 1e-6
        torch.testing.assert_close(step[used], p.grad.sign()[used], rtol=0.02, atol=0)


def test_final_metrics_are_last_values_means_and_what_the_task_adds():
    got = result(updates=9, evaluations=3)
    final, curves = got["final"], got["curves"]
    for name in ("validation_nll", "test_nll", "train_nll", "batch_loss"):
        assert final[name] == curves[name]["value"][-1]
    for name in ("validation_nll", "test_nll"):
        assert final[f"mean_{name}"] == pytest.approx(sum(curves[name]["value"][1:]) / 3)
    assert final["size"] > 0
    assert got["diverged_at"] is None


class Scripted(toy_experiment.Toy):
    """A toy whose readings are given."""

    rows = ()

    def evaluate(self):
        assert not self.model.training
        assert not torch.is_grad_enabled()
        Scripted.rows, row = Scripted.rows[1:], Scripted.rows[0]
        return dict(zip(("validation_nll", "test_nll"), row, strict=True))


@pytest.fixture
def scripted(monkeypatch):
    experiment = replace(toy_experiment.EXPERIMENT, task=Scripted)
    monkeypatch.setattr(toy_experiment, "EXPERIMENT", experiment)

    def run(*rows):
        Scripted.rows = rows
        return result(evaluations=len(rows) - 1)

    return run


def test_the_best_test_value_is_the_one_where_validation_was_best(scripted):
    final = scripted((0.0, 0.0), (2.0, 5.0), (1.0, 7.0), (3.0, 1.0))["final"]
    assert final["best_test_nll"] == 7.0
    assert final["test_nll"] == 1.0
    assert final["mean_test_nll"] == pytest.approx(13 / 3)
    assert final["mean_validation_nll"] == 2.0


def test_a_reading_that_is_not_a_number_is_as_bad_as_can_be(scripted):
    final = scripted((1.0, 1.0), (math.nan, 0.1), (2.0, 3.0), (3.0, math.nan))["final"]
    assert final["best_test_nll"] == 3.0
    assert final["test_nll"] == final["mean_test_nll"] == math.inf
    assert final["mean_validation_nll"] == math.inf


def test_readings_are_made_in_evaluation_mode_and_training_goes_on_in_training_mode(scripted):
    trainer = Trainer(toy_experiment.EXPERIMENT, config(), torch.device("cpu"))
    Scripted.rows = [(1.0, 1.0)]
    trainer.evaluate()
    assert trainer.model.training


LOOK = CHECK_EVERY
UPDATES = 2 * LOOK + 20
EVEN = UPDATES // 4  # a reading falls on each multiple of this


@pytest.mark.parametrize(
    "bad_at", [1, 2, EVEN - 1, EVEN, EVEN + 1, 2 * EVEN, LOOK, LOOK + 1, LOOK + EVEN, UPDATES]
)
def test_a_loss_that_is_not_finite_stops_the_run_at_its_very_update(bad_at):
    got = result("none", bad_at=bad_at, updates=UPDATES, evaluations=4)
    assert got["diverged_at"] == bad_at
    assert {name for name, value in got["final"].items() if value != math.inf} == set()
    assert {"mean_test_nll", "best_test_nll", "batch_loss", "train_nll"} <= set(got["final"])
    steps = got["curves"]["test_nll"]["step"]
    assert steps == [step for step in range(0, bad_at, EVEN) if step < bad_at]
    assert all(map(math.isfinite, got["curves"]["batch_loss"]["value"]))


def test_a_run_that_diverged_is_kept_and_equals_the_finite_one_up_to_there():
    bad = train(config("none", bad_at=25))
    assert records.read(records.path(get("toy").document(config("none", bad_at=25)))) == bad
    curve, whole = bad.result["curves"]["test_nll"], result("none")["curves"]["test_nll"]
    assert curve["value"] == whole["value"][:3]


def test_the_gradients_norm_is_cut_where_clip_says():
    norms = []
    for clip in (None, 1e3, 0.01):
        trainer = Trainer(get("toy"), config("none", clip=clip), torch.device("cpu"))
        with checkpoint.seeded(0, torch.device("cpu")):
            trainer.update(1)
        norms.append(nn.utils.get_total_norm([p.grad for p in trainer.parameters]).item())
    assert norms[2] == pytest.approx(0.01, rel=1e-3)
    assert norms[0] > 0.02
    assert result("none", clip=1e3) == result("none")
    assert result("none", clip=0.01) != result("none")


def test_bfloat16_computes_under_autocast_with_weights_kept_in_float32():
    low, full = result("none", precision="bfloat16"), result("none")
    assert low["final"]["test_nll"] == pytest.approx(full["final"]["test_nll"], rel=0.05)
    assert low["curves"]["test_nll"]["value"][0] != full["curves"]["test_nll"]["value"][0]
    assert low["curves"]["batch_loss"] != full["curves"]["batch_loss"]
    trainer = Trainer(get("toy"), config(precision="bfloat16"), torch.device("cpu"))
    assert {p.dtype for p in trainer.parameters} == {torch.float32}


def test_progress_is_told_at_the_start_at_each_reading_and_in_between():
    told = []
    many = config("none", updates=LOOK + 10, evaluations=1)
    train(many, save=False, progress=lambda step, metrics: told.append((step, metrics)))
    assert [step for step, _ in told] == [0, LOOK, LOOK + 10]
    assert told[1][1] == {}
    assert told[0][1].keys() == told[2][1].keys() >= {"test_nll", "batch_loss"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "device must be auto, cpu or cuda, got 'gpu'"),
        ("cuda", "device 'cuda' is not here: torch finds no GPU; use auto or cpu"),
    ],
)
def test_a_device_that_is_not_here_is_refused(monkeypatch, name, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.device_of("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match=message):
        train(config(), device=name)


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_the_checkpoints_and_not_the_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr(records, "save", lambda record, root: None)
    got = train(config(), checkpoint_seconds=0)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in said] == [
        f" no checkpoint of update {step}" for step in (10, 20, 30)
    ]
    assert said[0].endswith("No space left on device; the run goes on without")
    assert got.result == result()
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize(("seconds", "onward"), [(0, "goes on from its"), (1e9, "starts anew")])
def test_a_disk_full_at_the_end_is_told_and_the_run_can_go_on(monkeypatch, seconds, onward, capsys):
    with monkeypatch.context() as at_the_end:
        at_the_end.setattr(records, "save", full)
        with pytest.raises(
            OSError, match=f"No space left.*; make room and run it again: .*{onward}"
        ):
            train(config(), checkpoint_seconds=seconds)
    steps = []
    got = train(config(), progress=lambda step, _: steps.append(step))
    assert steps == ([] if seconds == 0 else [0, 10, 20, 30])
    assert got.result == result()
    assert capsys.readouterr().err == ""


def test_no_room_at_the_start_is_refused_before_the_first_update(monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(2**20))
    monkeypatch.setattr(Trainer, "update", full)
    with pytest.raises(OSError, match=r"has 1 MiB of free space, .* set LAYERNORM_RUNS to another"):
        train(config())
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(2**20 + 2**16))
    with pytest.raises(OSError, match="No space left"):  # by the update
        train(config())


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_first_update(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(Trainer, "update", full)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match=r"runs cannot be kept in .*Not a directory; make it a folder"
    ):
        train(config(), root=tmp_path / "file")

    def read_only(dir):
        raise PermissionError(errno.EACCES, "Permission denied", dir)

    monkeypatch.setattr(checkpoint.tempfile, "TemporaryFile", read_only)
    with pytest.raises(
        OSError, match=r"Permission denied; .* or set LAYERNORM_RUNS to another one"
    ):
        train(config(), root=tmp_path / "runs")
    assert Path(tmp_path / "runs").is_dir()


def test_a_model_that_cannot_be_trained_here_is_refused_before_it_takes_memory(monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda device: 2**20)
    made = []
    reset = nn.Linear.reset_parameters
    monkeypatch.setattr(
        nn.Linear, "reset_parameters", lambda self: made.append(self.in_features) or reset(self)
    )
    assert result("none", hidden=[200])
    made.clear()
    with pytest.raises(ValueError, match=r"takes more than 0\.0 GiB of memory, this machine has"):
        result("none", hidden=[200, 400])  # 400 * 200 weights of 4 bytes, four times
    assert made == [4]  # the second layer's weights were not filled
    monkeypatch.setattr(machine, "memory", lambda device: 2**40)
    with pytest.raises(ValueError, match="choose smaller sizes"):
        result("none", hidden=[1000, 10**9])
    assert result("none", hidden=[2])  # nothing is left of the refusal
