"""CIFAR-10: the loader on generated archives of the format, and the pins on the real one."""

import hashlib
import io
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from layernorm.lab import data
from layernorm.lab.data.pinned import Pinned

# The name layernorm.lab.data.cifar10 is the function.
module = sys.modules["layernorm.lab.data.cifar10"]
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
NAMES = [f"cifar-10-batches-bin/data_batch_{n}.bin" for n in (1, 2, 3, 4, 5)]
NAMES.append("cifar-10-batches-bin/test_batch.bin")


def contents(records=3):
    """Six files with that many records: random pixels, labels counted through 0..9."""
    rng = np.random.default_rng(0)
    files = {}
    for number, name in enumerate(NAMES):
        rows = rng.integers(0, 256, (records, 3073), dtype=np.uint8)
        rows[:, 0] = (np.arange(records) + number * records) % 10
        files[name] = rows.tobytes()
    return files


def pack(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"cifar-10-batches-bin/readme.html": b"hello", **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Three records a file, in $LAYERNORM_DATA, pinned as CIFAR-10."""
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    path = folder / "cifar-10-binary.tar.gz"
    pack(path, contents())
    pin(monkeypatch, path)
    monkeypatch.setattr(module, "RECORDS", 3)
    monkeypatch.setattr(module, "TRAINING_POINTS", 11)
    monkeypatch.setenv("LAYERNORM_DATA", str(folder.parent))
    monkeypatch.setattr("layernorm.lab.data.pinned.cache_folder", lambda name: tmp_path / "cache")
    return path


def pin(monkeypatch, path):
    raw = path.read_bytes()
    files = (Pinned(path.name, hashlib.sha256(raw).hexdigest(), len(raw)),)
    pinned = replace(data.DATASETS["cifar10"], files=files, mirrors=())
    monkeypatch.setattr(module, "CIFAR10", pinned)
    monkeypatch.setitem(data.DATASETS, "cifar10", pinned)


def test_sizes_are_those_of_the_format():
    assert (module.RECORDS, module.RECORD, module.TRAINING_POINTS) == (10_000, 3073, 45_000)


def test_planes_rows_and_labels_are_where_the_format_has_them(archive):
    splits = data.cifar10()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [11, 4, 3]
    assert splits.train.x.shape == (11, 3, 32, 32)
    raw = b"".join(contents()[name] for name in NAMES)
    for part, first in ((splits.train, 0), (splits.validation, 11), (splits.test, 15)):
        for case in range(len(part)):
            start = (first + case) * 3073
            assert part.y[case] == raw[start]
            for color, y, x in ((0, 0, 0), (0, 0, 31), (0, 1, 0), (1, 0, 0), (2, 31, 30)):
                byte = raw[start + 1 + color * 1024 + y * 32 + x]
                assert part.x[case, color, y, x] == torch.tensor(byte / 255)


def test_the_content_hash_depends_on_the_split(archive, monkeypatch):
    before = data.cifar10().sha256
    assert data.cifar10().sha256 == before
    monkeypatch.setattr(module, "TRAINING_POINTS", 10)
    assert data.cifar10().sha256 != before


@pytest.mark.parametrize("kept", [0, 10, 5000])
def test_a_truncated_archive_is_refused_by_its_hash_and_by_the_reader(archive, kept):
    archive.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"binary\.tar\.gz: expected sha256"):
        data.cifar10()
    with pytest.raises(ValueError, match=r"binary\.tar\.gz: expected a whole gzipped tar archive"):
        module.read(archive)


def flipped(raw, place, value=None):
    return raw[:place] + bytes([raw[place] ^ 0xFF if value is None else value]) + raw[place + 1 :]


def test_a_corrupt_archive_is_refused_by_the_reader(archive):
    content = archive.read_bytes()
    archive.write_bytes(flipped(content, len(content) // 2))
    with pytest.raises(ValueError, match=r"binary\.tar\.gz: expected a whole gzipped tar archive"):
        module.read(archive)


BROKEN = {  # number of the file, its new content (None: it is missing), what is said
    "label": (3, lambda raw: flipped(raw, 2 * 3073, 10),
              r"labels from 0 to 9 in .*_4\.bin, got 10 in record 2 \(byte 6146\)"),
    "missing": (5, lambda raw: None, r"expected a file .*test_batch\.bin in the archive"),
    "short": (0, lambda raw: raw[:-1], r"3 records of 3073 .* 9219 bytes, got 9218"),
    "long": (0, lambda raw: raw + raw[:3073], r"3 records of 3073 bytes in .*_1\.bin.* got 12292"),
}  # fmt: skip


@pytest.mark.parametrize(("number", "change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named(archive, number, change, message):
    files = contents()
    files[NAMES[number]] = change(files[NAMES[number]])
    pack(archive, {name: content for name, content in files.items() if content is not None})
    with pytest.raises(ValueError, match=message):
        module.read(archive)


SPARSE = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(10**12),
          "GNU.sparse.map": f"{10**12 - 1},1"}  # fmt: skip
STRANGE = {  # a folder, what leads in circles, a pipe, a file that unpacks to a terabyte
    "folder": {"type": tarfile.DIRTYPE},
    "symbolic link": {"type": tarfile.SYMTYPE},
    "link": {"type": tarfile.LNKTYPE},
    "pipe": {"type": tarfile.FIFOTYPE},
    "sparse": {"size": 1, "pax_headers": SPARSE},
}


@pytest.mark.parametrize("entries", STRANGE.values(), ids=STRANGE)
def test_what_is_no_plain_file_is_refused(archive, entries):
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as packed:
        for name, other in ((NAMES[0], NAMES[1]), (NAMES[1], NAMES[0])):
            member = tarfile.TarInfo(name)
            for entry, value in {"linkname": other, **entries}.items():
                setattr(member, entry, value)
            packed.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(ValueError, match=r"expected a file .*data_batch_1\.bin in the archive"):
        module.read(archive)


def test_an_archive_that_unpacks_to_more_than_twice_its_files_is_refused(archive, monkeypatch):
    monkeypatch.setattr(module, "MOST", 10_000)
    pack(archive, {"zeros": bytes(20_000)})
    with pytest.raises(ValueError, match=r"expected at most 10000 bytes in the archive"):
        module.read(archive)


def test_without_the_archive_the_error_says_what_to_do_by_hand(archive):
    archive.unlink()
    with pytest.raises(FileNotFoundError, match=r"layernorm data fetch cifar10"):
        data.verify("cifar10")
    with pytest.raises(OSError, match=r"folder named cifar10, and set LAYERNORM_DATA") as error:
        data.cifar10()
    assert "$LAYERNORM_DATA/cifar10/cifar-10-binary.tar.gz" in str(error.value)


def test_an_archive_that_is_not_there_is_not_called_broken(tmp_path):
    with pytest.raises(FileNotFoundError):
        module.read(tmp_path / "none.tar.gz")


def test_the_real_archive_has_the_published_md5_and_the_fixed_split():
    try:
        (file,) = data.verify("cifar10")
    except FileNotFoundError as error:
        pytest.skip(f"real CIFAR-10 is not here: {error}")
    with file.path.open("rb") as content:
        assert hashlib.file_digest(content, "md5").hexdigest() == MD5
    splits = data.cifar10()
    counts = [torch.bincount(part.y).sum() for part in (splits.train, splits.validation)]
    assert counts == [45_000, 5_000]
    assert torch.bincount(splits.test.y).tolist() == [1000] * 10
