"""CIFAR-10: small color photographs, what section 6.7 is tried on at its real size."""

import gzip
import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from layernorm.lab.data.dataset import Dataset
from layernorm.lab.data.pinned import Pinned
from layernorm.lab.data.splits import Splits, scaled

FOLDER = "cifar-10-batches-bin"
TRAINING = tuple(f"{FOLDER}/data_batch_{number}.bin" for number in range(1, 6))
TEST = f"{FOLDER}/test_batch.bin"
RECORDS = 10_000  # in each of the six files
RECORD = 1 + 3 * 32 * 32  # bytes: the label, then the red, the green and the blue plane by rows
TRAINING_POINTS = 45_000
MOST = 2 * 6 * RECORDS * RECORD  # bytes, unpacked: twice the six files


def cifar10() -> Splits:
    """60,000 photographs of 32x32 pixels in three colors, ten classes of things and animals.

    x has the shape (n, 3, 32, 32), red, green, blue; pixels are the file's 0..255 divided by 255.
    Of the 50,000 examples for training the first 45,000 are for training, the last 5,000 for
    validation; the 10,000 of the test file are for test, as everywhere.

    Reads the archive of the binary version, from `$LAYERNORM_DATA/cifar10` if it is there, else
    from the cache folder, downloaded once (170 MB); it must have its pinned SHA-256. Held in memory
    as float32: 740 MB. Source: A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny
    Images; no license is stated.

    Raises:
        ModuleNotFoundError: a download is needed and pooch is not installed.
        OSError: no mirror gave the archive; says what to do by hand.
        ValueError: the archive in `$LAYERNORM_DATA/cifar10` is not the pinned one, or is not what
            `read` expects.
    """
    (found,) = CIFAR10.fetch()
    training, test = read(found.path)
    parts = {
        "train": tuple(part[:TRAINING_POINTS] for part in training),
        "validation": tuple(part[TRAINING_POINTS:] for part in training),
        "test": test,
    }
    return scaled("cifar10", parts, maximum=255)


Labeled = tuple[UInt8[Tensor, "_ 3 32 32"], UInt8[Tensor, "_"]]


def read(path: Path) -> tuple[Labeled, Labeled]:
    """The training and the test examples, as stored, of an archive of the binary version.

    Raises:
        ValueError: it is not a gzipped tar archive, cut off or corrupt; or one of the six files is
            missing, has another length than its records, or a label above 9. Names the file, and
            the position of the label.
    """
    try:
        with gzip.open(path) as file:
            content = file.read(MOST + 1)  # to the end, where gzip's checksum is
        if len(content) > MOST:
            raise ValueError(f"{path}: expected at most {MOST} bytes in the archive, it has more")
        whole = io.BytesIO(content)
        with tarfile.open(fileobj=whole) as archive:
            contents = {name: _content(path, archive, name) for name in (*TRAINING, TEST)}
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error) as error:
        raise ValueError(
            f"{path}: expected a whole gzipped tar archive, got one that breaks: {error}"
        ) from error
    parts = {name: _examples(path, name, content) for name, content in contents.items()}
    images, labels = zip(*(parts[name] for name in TRAINING), strict=True)
    return (torch.cat(images), torch.cat(labels)), parts[TEST]


def _content(path: Path, archive: tarfile.TarFile, name: str) -> bytes:
    """Read a plain file; a link could lead in circles, a sparse file be larger than it seems."""
    try:
        member = archive.getmember(name)
    except KeyError:
        member = None
    if member is None or not member.isreg() or member.issparse():
        raise ValueError(f"{path}: expected a file {name} in the archive, there is none")
    with archive.extractfile(member) as file:
        return file.read()


def _examples(path: Path, name: str, content: bytes) -> Labeled:
    if len(content) != RECORDS * RECORD:
        raise ValueError(
            f"{path}: expected {RECORDS} records of {RECORD} bytes in {name}, "
            f"{RECORDS * RECORD} bytes, got {len(content)}"
        )
    rows = torch.from_numpy(np.frombuffer(content, np.uint8).reshape(RECORDS, RECORD).copy())
    labels = rows[:, 0]
    if (labels > 9).any():
        at = int((labels > 9).nonzero()[0])
        raise ValueError(
            f"{path}: expected labels from 0 to 9 in {name}, got {int(labels[at])} in record {at} "
            f"(byte {at * RECORD})"
        )
    return rows[:, 1:].reshape(-1, 3, 32, 32).contiguous(), labels.contiguous()


CIFAR10 = Dataset(
    name="cifar10",
    what="60,000 color photographs of 32x32 pixels, ten classes (45,000/5,000/10,000)",
    license="none stated",
    source="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    load=cifar10,
    files=(
        Pinned(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170_052_171,
        ),
    ),
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
)
