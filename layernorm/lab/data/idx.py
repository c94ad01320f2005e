"""The IDX format of MNIST: gzip around a big-endian header and one byte per element.

The header is the number 2048 + dimensions (2049 for labels, 2051 for images; the 8 in 0x0801
and 0x0803 says unsigned bytes), then the length of each dimension, four bytes each.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

MOST = 2**29  # bytes that are read of a file; MNIST's largest has 47 million


def read(path: Path, dimensions: int) -> UInt8[Tensor, "..."]:
    """The bytes of a gzipped IDX file as a tensor with the given number of dimensions.

    Raises:
        ValueError: not gzip, cut off or corrupt, not IDX with these dimensions, or longer or
            shorter than its header says; names the file.
    """
    header = 4 * (1 + dimensions)
    try:
        with gzip.open(path) as file:
            raw = file.read(header)
            magic, *shape = struct.unpack(f">{1 + dimensions}I", raw.ljust(header, b"\0"))
            content = file.read(min(math.prod(shape), MOST) + 1)  # to the end, if it is there
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: expected a whole gzip file, got one that breaks: {error}"
        ) from error
    if len(raw) < header:
        raise ValueError(f"{path}: expected an IDX header of {header} bytes, got {len(raw)} bytes")
    if magic != 2048 + dimensions:
        raise ValueError(
            f"{path}: expected IDX magic number {2048 + dimensions} (unsigned bytes in "
            f"{dimensions} dimensions), got {magic}"
        )
    if len(content) != math.prod(shape):
        raise ValueError(
            f"{path}: expected {' x '.join(map(str, shape))} = {math.prod(shape)} bytes after "
            f"the header, at most {MOST}, got {len(content)}"
            f"{' or more' if len(content) > min(math.prod(shape), MOST) else ''}"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(shape).copy())


def read_labeled(
    images: Path, labels: Path, classes: int
) -> tuple[UInt8[Tensor, "n h w"], UInt8[Tensor, "n"]]:
    """Images and their labels 0..classes-1 from a pair of IDX files.

    Raises:
        ValueError: as `read`; or the two files differ in length; or a label is out of range.
    """
    x, y = read(images, 3), read(labels, 1)
    if len(x) != len(y):
        raise ValueError(
            f"{images} and {labels}: expected one label for each image, got {len(x)} images and "
            f"{len(y)} labels"
        )
    if (y >= classes).any():
        at = int((y >= classes).nonzero()[0])
        raise ValueError(
            f"{labels}: expected labels from 0 to {classes - 1}, got {int(y[at])} at position {at}"
        )
    return x, y
