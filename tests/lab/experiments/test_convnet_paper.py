"""ConvNets at the paper's size: starts and trains, on generated photographs like CIFAR-10's."""

import hashlib
import math
import sys
from dataclasses import replace

import pytest
from lab.data import test_cifar10 as generated

from layernorm.lab import data
from layernorm.lab.data.pinned import Pinned
from layernorm.lab.experiments import get
from layernorm.lab.experiments.convnet import task as convnet_task
from layernorm.lab.experiments.run import train

module = sys.modules["layernorm.lab.data.cifar10"]
FEW = {"updates": 2, "evaluations": 1, "batch_size": 4, "watched": 4, "learning_rate": 1e-3}


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Four records a file, found in the reader's own folder; 16 of the 20 are for training."""
    folder = tmp_path / "cifar10"
    folder.mkdir()
    path = folder / "cifar-10-binary.tar.gz"
    generated.pack(path, generated.contents(4))
    pin = Pinned(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    pinned = replace(data.DATASETS["cifar10"], files=(pin,), mirrors=())
    monkeypatch.setattr(module, "CIFAR10", pinned)
    monkeypatch.setattr(module, "RECORDS", 4)
    monkeypatch.setattr(module, "TRAINING_POINTS", 16)
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    convnet_task.splits.cache_clear()
    yield
    convnet_task.splits.cache_clear()


@pytest.mark.parametrize("arm", ["batch", "layer-circular", "group-resnet"])
def test_the_paper_profile_starts_and_trains(photographs, arm):
    experiment = get("convnet")
    config = experiment.config("paper", arm, 0, **FEW)
    record = train(config, save=False)
    assert record.config["data"] == convnet_task.splits("cifar10").sha256
    nll = record.result["curves"]["train_nll"]["value"]
    assert len(nll) == 2
    assert nll[0] != nll[1]
    assert all(map(math.isfinite, nll))
    layers = 6 if arm != "group-resnet" else 10  # those with a ReLU right behind them
    assert f"active_{layers}_0" in record.result["final"]
    assert f"active_{layers + 1}_0" not in record.result["final"]


def test_its_plan_asks_for_every_method():
    profile = get("convnet").profile("paper")
    for method in ("none", "rescaled", "batch", "layer", "layer-channels", "group", "instance"):
        assert {method, f"{method}-resnet"} <= set(profile.arms)


def test_without_the_archive_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CIFAR10", replace(data.DATASETS["cifar10"], mirrors=()))
    monkeypatch.setattr("layernorm.lab.data.pinned.cache_folder", lambda name: tmp_path / "cache")
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    convnet_task.splits.cache_clear()
    with pytest.raises(OSError, match=r"\$LAYERNORM_DATA/cifar10/cifar-10-binary.tar.gz"):
        train(get("convnet").config("paper", "layer", 0, **FEW), save=False)
