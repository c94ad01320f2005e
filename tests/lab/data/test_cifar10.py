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

module = sys.modules[
    "layernorm.lab.data.cifar10"
]  # the name layernorm.lab.data.cifar10 is the function
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


def test_a_corrupt_archive_is_refused_by_the_reader(archive):
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=r"binary\.tar\.gz: expected a whole gzipped tar archive"):
        module.read(archive)


def test_a_label_out_of_range_is_refused_with_its_file_and_position(archive):
    files = contents()
    broken = bytearray(files[NAMES[3]])
    broken[2 * 3073] = 10
    pack(archive, {**files, NAMES[3]: bytes(broken)})
    message = r"labels from 0 to 9 in .*data_batch_4\.bin, got 10 in record 2 \(byte 6146\)"
    with pytest.raises(ValueError, match=message):
        module.read(archive)


def test_a_file_that_is_missing_is_named(archive):
    files = contents()
    del files[NAMES[5]]
    pack(archive, files)
    with pytest.raises(ValueError, match=r"expected a file .*test_batch\.bin in the archive"):
        module.read(archive)


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + raw[:3073]])
def test_a_file_of_another_length_is_named_with_both_lengths(archive, change):
    files = contents()
    files[NAMES[0]] = change(files[NAMES[0]])
    pack(archive, files)
    message = (
        rf"expected 3 records of 3073 bytes in .*_1\.bin, 9219 bytes, got {len(files[NAMES[0]])}"
    )
    with pytest.raises(ValueError, match=message):
        module.read(archive)


def test_a_folder_in_the_place_of_a_file_is_refused(archive):
    files = contents()
    del files[NAMES[0]]
    pack(archive, files)
    with tarfile.open(archive, "w:gz") as packed:
        member = tarfile.TarInfo(NAMES[0])
        member.type = tarfile.DIRTYPE
        packed.addfile(member)
    with pytest.raises(ValueError, match=r"expected a file .*data_batch_1\.bin in the archive"):
        module.read(archive)


def member(name, kind=tarfile.REGTYPE, **entries):
    made = tarfile.TarInfo(name)
    made.type = kind
    for entry, value in entries.items():
        setattr(made, entry, value)
    return made


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_member_that_leads_in_circles_or_is_a_pipe_is_refused(archive, kind):
    with tarfile.open(archive, "w:gz") as packed:
        packed.addfile(member(NAMES[0], kind, linkname=NAMES[1]))
        packed.addfile(member(NAMES[1], kind, linkname=NAMES[0]))
    with pytest.raises(ValueError, match=r"expected a file .*data_batch_1\.bin in the archive"):
        module.read(archive)


def test_a_sparse_member_that_unpacks_to_a_terabyte_is_refused(archive):
    entries = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(10**12)}
    entries |= {"GNU.sparse.map": f"{10**12 - 1},1"}
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(member(NAMES[0], size=1, pax_headers=entries), io.BytesIO(b"x"))
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
