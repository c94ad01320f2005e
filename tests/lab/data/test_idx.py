"""The IDX reader: what a good file gives, and that every kind of bad file is refused by name."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch

from layernorm.lab.data import idx


def write(path: Path, magic: int, shape: tuple[int, ...], content: bytes) -> Path:
    header = struct.pack(f">{1 + len(shape)}I", magic, *shape)
    path.write_bytes(gzip.compress(header + content, mtime=0))
    return path


def test_images_are_read_in_row_order(tmp_path):
    path = write(tmp_path / "i.gz", 2051, (2, 2, 3), bytes(range(244, 256)))
    expected = torch.arange(244, 256, dtype=torch.uint8).reshape(2, 2, 3)
    assert torch.equal(idx.read(path, 3), expected)


def test_a_file_without_examples_is_read(tmp_path):
    path = write(tmp_path / "i.gz", 2051, (0, 28, 28), b"")
    assert idx.read(path, 3).shape == (0, 28, 28)


def test_images_and_labels_are_paired(tmp_path):
    images = write(tmp_path / "i.gz", 2051, (3, 1, 1), b"abc")
    labels = write(tmp_path / "l.gz", 2049, (3,), bytes([9, 0, 4]))
    x, y = idx.read_labeled(images, labels, classes=10)
    assert x.flatten().tolist() == list(b"abc")
    assert y.tolist() == [9, 0, 4]


@pytest.mark.parametrize(
    ("magic", "shape", "content", "message"),
    [
        (2049, (3,), b"abc", "an IDX header of 16 bytes, got 11 bytes"),
        (2049, (3, 1, 1), b"abc", "magic number 2051 .* got 2049"),
        (0x0D03, (3, 1, 1), b"abc", "magic number 2051 .* got 3331"),
        (0x03080000, (3, 1, 1), b"abc", "magic number 2051 .* got 50855936"),
        (2051, (3, 1, 1), b"ab", "3 x 1 x 1 = 3 bytes after the header, .* got 2"),
        (2051, (3, 1, 1), b"abcd", "3 x 1 x 1 = 3 bytes after the header, .* got 4 or more"),
        (2051, (2**32 - 1,) * 3, b"abc", "bytes after the header, .* got 3"),
    ],
)
def test_a_file_that_is_not_what_its_header_says_is_refused(
    tmp_path, magic, shape, content, message
):
    path = write(tmp_path / "bad.gz", magic, shape, content)
    with pytest.raises(ValueError, match=rf"bad\.gz: expected .*({message})"):
        idx.read(path, 3)


@pytest.mark.parametrize("shape", [(2, 2, 3), (2**32 - 1,) * 3])
def test_of_a_file_that_unpacks_to_far_more_no_more_is_read_than_needed(
    tmp_path, monkeypatch, shape
):
    monkeypatch.setattr(idx, "MOST", 1000)
    path = write(tmp_path / "bomb.gz", 2051, shape, bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"bomb\.gz: expected .* or more"):
        idx.read(path, 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


SPOILED = {
    "cut": lambda raw: raw[: len(raw) // 2],
    "without its trailer": lambda raw: raw[:-4],
    "another checksum": lambda raw: raw[:-8] + bytes([raw[-8] ^ 1]) + raw[-7:],
    "another content": lambda raw: raw[:40] + bytes([raw[40] ^ 0xFF]) + raw[41:],
    "another block type": lambda raw: raw[:10] + b"\xff" + raw[11:],
    "unpacked": gzip.decompress,
    "with more behind": lambda raw: raw + b"garbage",
    "a page": lambda raw: b"<html>Not found</html>",
    "empty": lambda raw: b"",
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_spoiled_gzip_file_is_refused_by_name(tmp_path, spoil):
    noise = torch.randint(256, (3, 10, 10), generator=torch.Generator().manual_seed(0))
    path = write(tmp_path / "bad.gz", 2051, (3, 10, 10), bytes(noise.flatten().tolist()))
    idx.read(path, 3)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=r"bad\.gz: expected"):
        idx.read(path, 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (bytes([9, 10, 4]), r"l\.gz: expected labels from 0 to 9, got 10 at .* 1"),
        (bytes([9, 4]), "got 3 images and 2 labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels, message):
    images = write(tmp_path / "i.gz", 2051, (3, 1, 1), b"abc")
    labels = write(tmp_path / "l.gz", 2049, (len(labels),), labels)
    with pytest.raises(ValueError, match=message):
        idx.read_labeled(images, labels, classes=10)
