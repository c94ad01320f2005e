"""MNIST: the loader on tiny IDX files, and the pinned hashes and split on the real ones."""

import gzip
import hashlib
import struct
import sys
from dataclasses import replace

import pytest
import torch

from layernorm.lab import data
from layernorm.lab.data.pinned import Pinned

# The name layernorm.lab.data.mnist is the function.
module = sys.modules["layernorm.lab.data.mnist"]
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Five training and two test images of 2x3 pixels in $LAYERNORM_DATA, pinned as MNIST."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    files = []
    for pin in data.DATASETS["mnist"].files:
        count = 5 if "train" in pin.name else 2
        if "images" in pin.name:
            content = struct.pack(">4I", 2051, count, 2, 3) + bytes(range(6 * count))
        else:
            content = struct.pack(">2I", 2049, count) + bytes(range(10 - count, 10))
        raw = gzip.compress(content, mtime=0)
        (folder / pin.name).write_bytes(raw)
        files.append(Pinned(pin.name, hashlib.sha256(raw).hexdigest(), len(raw)))
    pinned = replace(data.DATASETS["mnist"], files=tuple(files), mirrors=())
    monkeypatch.setattr(module, "MNIST", pinned)
    monkeypatch.setitem(data.DATASETS, "mnist", pinned)
    monkeypatch.setattr(module, "TRAINING_POINTS", 3)
    monkeypatch.setenv("LAYERNORM_DATA", str(folder.parent))
    monkeypatch.setattr("layernorm.lab.data.pinned.cache_folder", lambda name: tmp_path / "cache")
    return folder


def test_the_first_points_are_for_training_the_rest_for_validation(tiny):
    splits = data.mnist()
    x = torch.arange(30, dtype=torch.float32).reshape(5, 2, 3) / 255
    assert torch.equal(splits.train.x, x[:3])
    assert torch.equal(splits.validation.x, x[3:])
    assert torch.equal(splits.test.x, x[:2])
    assert splits.train.y.tolist() == [5, 6, 7]
    assert splits.validation.y.tolist() == [8, 9]
    assert splits.test.y.tolist() == [8, 9]


def test_the_content_hash_depends_on_the_split(tiny, monkeypatch):
    before = data.mnist().sha256
    assert data.mnist().sha256 == before
    monkeypatch.setattr(module, "TRAINING_POINTS", 4)
    assert data.mnist().sha256 != before


def test_the_own_folder_is_reported_and_verified(tiny):
    assert data.describe()[1]["status"] == str(tiny)
    rows = data.verify("mnist")
    assert [row.path for row in rows] == [tiny / pin.name for pin in module.MNIST.files]


def test_own_files_need_no_pooch(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert len(data.mnist().train) == 3


def test_a_wrong_own_file_is_refused_with_both_hashes_and_left_alone(tiny):
    path = tiny / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-1])
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in tiny.iterdir()}
    message = rf"t10k-labels.*: expected sha256 {module.MNIST.files[3].sha256}, got {actual}"
    for attempt in (data.mnist, lambda: data.fetch("mnist"), lambda: data.verify("mnist")):
        with pytest.raises(ValueError, match=message):
            attempt()
    after = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in tiny.iterdir()}
    assert after == before


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tiny):
    (tiny / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"train-labels.*layernorm data fetch mnist"):
        data.verify("mnist")
    assert data.describe()[1]["status"] == "not fetched"


def test_a_data_variable_that_names_no_folder_is_an_error(tiny, monkeypatch):
    monkeypatch.setenv("LAYERNORM_DATA", str(tiny / "absent"))
    with pytest.raises(NotADirectoryError, match=r"LAYERNORM_DATA: expected a folder.*absent"):
        data.mnist()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="expected one of digits, mnist, cifar10, got 'cifar'"):
        data.fetch("cifar")


def test_the_real_files_have_the_published_md5_and_the_fixed_split():
    try:
        files = data.verify("mnist")
    except FileNotFoundError as error:
        pytest.skip(f"real MNIST is not here: {error}")
    for file in files:
        assert hashlib.md5(file.path.read_bytes()).hexdigest() == MD5[file.file]
    splits = data.mnist()
    counts = [len(part) for part in (splits.train, splits.validation, splits.test)]
    assert counts == [55_000, 5_000, 10_000]
    assert splits.sha256 == data.DATASETS["mnist"].content
    assert splits.train.x.dtype == torch.float32
    assert (splits.train.x.min(), splits.train.x.max()) == (0, 1)
    assert splits.train.y[:5].tolist() == [5, 0, 4, 1, 9]
