"""From tensors to kernels: which rows, how large a tile, how many programs, on which device.

Nothing here waits for the GPU, and what is launched depends on shapes alone: the calls can be
captured in a CUDA graph, and the same input gives the same bits.
"""

import functools
import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from layernorm.kernels import rows

INTERPRETED = not isinstance(rows.forward, triton.JITFunction)

# Elements of a tile, and of the longest row that is held on chip. Backward, each element takes four
# registers of a thread (x̂, its gradient, the sums for gain and bias), and the tiles after the one
# that is being worked on are fetched into shared memory, if that has room.
TILE = {"forward": 4096, "backward": 4096}
LONGEST = {"forward": 32768, "backward": 16384}
# Elements of a thread, of which the same instructions for a row (sums, addresses) are shared.
SHARE = {"forward": 32, "backward": 32}
# Of a multiprocessor, backward, so that a thread has as many registers as it can. With twice as
# many warps, of half as many elements and registers each, rows of 512 and 1024 in bfloat16 took 13
# to 45% longer on an H200 (layer norm), longer rows as long.
RESIDENT_WARPS = 8
HELD = 8192  # elements of the longest gain that has room in registers beside a backward tile
EARLY = 16384  # bytes of the longest gain that is loaded while the sums of the rows are formed
COLUMNS, PARTIAL_ROWS = 32, 128  # of a tile of partial sums


class Tile(NamedTuple):
    """`rows` x `block` elements; a row is `resident` if a block holds all of it."""

    rows: int
    block: int
    resident: bool
    warps: int


def tile(width: int, direction: str, itemsize: int = 2) -> Tile:
    """How rows of so many elements, of so many bytes each, are cut up.

    >>> tile(100, "forward")
    Tile(rows=32, block=128, resident=True, warps=4)
    >>> tile(65536, "backward")
    Tile(rows=1, block=4096, resident=False, warps=4)
    """
    size, share = TILE[direction], SHARE[direction]
    if itemsize > 4 or (direction == "forward" and itemsize > 2):  # it is bytes that are in flight
        size, share = size // 2, share // 2
    block = triton.next_power_of_2(width)
    resident = block <= LONGEST[direction]
    block = block if resident else size
    count = max(1, size // block)
    most = 32 if block > 16384 else 16
    return Tile(count, block, resident, min(most, max(4, count * block // (32 * share))))


def unit(*sizes: int) -> int:
    """The power of two, at most 8, that divides widths and strides: so many numbers are read at
    once. 1 if 16 does, which Triton finds out by itself.

    >>> unit(1000, 1000, 0), unit(1000, 1002), unit(1024, 0)
    (8, 2, 1)
    """
    return math.gcd(16, *sizes) % 16 or 1


class Steps(NamedTuple):
    """Row (i n1 + j) n2 + k of a tensor begins at i s0 + j s1 + k s2; `strides` has its s."""

    n1: int
    n2: int
    strides: list[tuple[int, int, int]]


def steps(tensors: list[Tensor], dims: int) -> Steps | None:
    """Through the rows of tensors of one shape; the last `dims` dimensions are a row.

    None if a row of one of them has gaps, or if it takes more than three nested steps.

    >>> steps([torch.empty(8, 5, 6)[::2], torch.empty(1, 5, 6).expand(4, 5, 6)], 1)
    Steps(n1=5, n2=1, strides=[(60, 6, 0), (0, 6, 0)])
    """
    shape = tensors[0].shape
    for t in tensors:
        expected = 1
        for d in range(len(shape) - 1, len(shape) - dims - 1, -1):
            if shape[d] != 1 and t.stride(d) != expected:
                return None
            expected *= shape[d]
    lengths, strides = [], []
    for d in range(len(shape) - dims):
        if shape[d] == 1:
            continue
        inner = [t.stride(d) for t in tensors]
        if lengths and strides[-1] == [s * shape[d] for s in inner]:  # one step with the last
            lengths[-1], strides[-1] = lengths[-1] * shape[d], inner
        else:
            lengths.append(shape[d])
            strides.append(inner)
    if len(lengths) > 3:
        return None
    missing = 3 - len(lengths)
    lengths += [1] * missing
    strides += [[0] * len(tensors)] * missing
    return Steps(lengths[1], lengths[2], list(zip(*strides, strict=True)))


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, dims: int,
    eps: float, dtype: torch.dtype, keep: bool, centered: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y of type `dtype`; x + residual; and, to `keep` for the gradient, every row's mean with its
    rounding error (if `centered`) and 1 / sqrt(variance + eps). What is not there is empty."""
    check_device(x)
    y, total, mean, rstd = allocate(x, residual, dims, dtype, keep, centered)
    if x.numel() == 0:
        return y, total, mean, rstd
    count, width = _sizes(x, dims)
    (x, residual), step, (of_x, of_residual) = _steps([x, residual], dims)
    cut = tile(width, "forward", x.element_size())
    with _on(x.device):
        rows.forward[(triton.cdiv(count, cut.rows),)](
            x, residual, _dense(weight), _dense(bias), y, None if residual is None else total,
            mean if keep and centered else None, rstd if keep else None, count, width, *step,
            *of_x, *of_residual, EPS=eps, ACC=_accumulator(x)[1], CENTERED=centered,
            RESIDENT=cut.resident, WHOLE=width % cut.block == 0,
            EARLY=cut.block * x.element_size() <= EARLY, ROWS=cut.rows, BLOCK=cut.block,
            UNIT=unit(width, *of_x, *of_residual), **options(cut, "forward", x.element_size()),
        )  # fmt: skip
    return y, total, mean, rstd


def allocate(
    x: Tensor, residual: Tensor | None, dims: int, dtype: torch.dtype, keep: bool, centered: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for the results of `forward`."""
    kind = _accumulator(x)[0]
    leading = x.shape[: x.dim() - dims] if keep else (0,)
    return (
        x.new_empty(x.shape, dtype=dtype),
        x.new_empty((0,) if residual is None else x.shape),
        x.new_empty((*leading, 2) if centered and keep else (0,), dtype=kind),
        x.new_empty(leading, dtype=kind),
    )


def backward(
    dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, bias: Tensor | None,
    mean: Tensor, rstd: Tensor, dims: int, wants_weight: bool, wants_bias: bool, centered: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (the sum, where a residual was added), weight and bias; unwanted: empty."""
    check_device(x)
    dx, dweight, dbias = allocate_gradients(x, weight, bias, wants_weight, wants_bias)
    if x.numel() == 0:
        return dx, dweight.zero_(), dbias.zero_()
    count, width = _sizes(x, dims)
    (dy, dtotal, x), step, of_each = _steps([dy, dtotal, x], dims)
    strides = [s for each in of_each for s in each]
    kind, acc = _accumulator(x)
    mean, weight = mean if centered else None, _dense(weight)
    cut = tile(width, "backward", x.element_size())
    compiled = options(cut, "backward", x.element_size()) | {"UNIT": unit(width, *strides)}
    programs, stages = plan(cut, count, width, x, dtotal is not None)
    partial = x.new_empty((wants_weight + wants_bias, programs, width), dtype=kind)
    wanted = [g for g, wants in ((dweight, wants_weight), (dbias, wants_bias)) if wants]
    with _on(x.device):
        along = plain = None
        if not cut.resident:
            along = x.new_empty(count, dtype=kind)
            plain = x.new_empty(count, dtype=kind) if centered else None
            rows.gradient_means[(triton.cdiv(count, cut.rows),)](
                dy, x, weight, mean, rstd, along, plain, count, width, *step, *of_each[0],
                *of_each[2], ACC=acc, ROWS=cut.rows, BLOCK=cut.block, **compiled,
            )  # fmt: skip
        rows.backward[(programs, triton.cdiv(width, cut.block))](
            dy, dtotal, x, weight, mean, rstd, along, plain, dx,
            partial[0] if wants_weight else None, partial[-1] if wants_bias else None, count,
            width, *step, *strides, ACC=acc, CENTERED=centered, RESIDENT=cut.resident,
            WHOLE=width % cut.block == 0, HELD=cut.block <= HELD, ROWS=cut.rows, BLOCK=cut.block,
            STAGES=stages, **compiled,
        )  # fmt: skip
        add_up(partial, wanted)
    return dx, dweight, dbias


def plan(cut: Tile, count: int, width: int, x: Tensor, residual: bool) -> tuple[int, int]:
    """The programs that share `count` rows backward, as many as run at once, and the tiles that
    each has in hand: with two, one is fetched into shared memory while the other is worked on."""
    chip = _chip(x.device)
    at_once = max(1, RESIDENT_WARPS // cut.warps)
    blocks = triton.cdiv(width, cut.block)
    programs = min(triton.cdiv(count, cut.rows), max(1, at_once * chip.multiprocessors // blocks))
    tensors = 2 + residual + (cut.block > HELD)
    fetched = tensors * cut.rows * cut.block * x.element_size()
    return programs, 1 + min(2, max(0, chip.shared_memory // at_once - 2048) // fetched)


def options(cut: Tile, direction: str, itemsize: int) -> dict:
    """How a kernel is compiled: its warps, and the most registers of a thread, so that the programs
    that are planned fit; forward, two of the longest rows (but not in float64)."""
    if torch.version.hip is not None:  # a warp has 64 threads there, and a program at most 1024
        return {"num_warps": max(1, cut.warps // 2)}
    registers = min(255, 65536 // (32 * max(RESIDENT_WARPS, cut.warps)))
    if direction == "forward":
        registers = 64 if cut.warps > 8 and itemsize < 8 else None
    return {"num_warps": cut.warps, "maxnreg": registers}


def add_up(partial: Tensor, sums: list[Tensor]) -> None:
    """Put the sums of partial (n, programs, width) over the programs into n tensors, n <= 2."""
    if sums:
        _, count, width = partial.shape
        rows.add_up[(triton.cdiv(width, COLUMNS), len(sums))](
            partial, sums[0], sums[1] if len(sums) > 1 else None, count, width,
            ACC=_accumulator(partial)[1], ROWS=PARTIAL_ROWS, BLOCK=COLUMNS, num_warps=8,
        )  # fmt: skip


def allocate_gradients(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, wants_weight: bool, wants_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the results of `backward`."""
    return (
        x.new_empty(x.shape),
        weight.new_empty(weight.shape) if wants_weight else x.new_empty(0),
        bias.new_empty(bias.shape) if wants_bias else x.new_empty(0),
    )


def check_device(x: Tensor) -> None:
    """Raise ValueError where the kernels cannot run on x's device."""
    if not (x.is_cuda or INTERPRETED):
        raise ValueError(
            f'backend "triton" computes on CUDA devices, got a tensor on {x.device}; move it with '
            '.cuda(), use backend="auto", or set TRITON_INTERPRET=1 in the environment before '
            "Python starts to try the kernels on a CPU, in Triton's slow interpreter"
        )
    if INTERPRETED:
        check_interpreter(triton.__version__, np.__version__)


def check_interpreter(of_triton: str, of_numpy: str) -> None:
    """Raise RuntimeError for versions with which Triton's interpreter cannot run a loop: before
    3.7 it takes an array of one number for a number, which NumPy refuses since 2.4."""
    if _version(of_triton) < (3, 7) and _version(of_numpy) >= (2, 4):
        raise RuntimeError(
            f"the interpreter of Triton {of_triton} does not work with NumPy {of_numpy}; install "
            "triton>=3.7 or numpy<2.4 (on a GPU, without TRITON_INTERPRET=1, any will do)"
        )


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _sizes(x: Tensor, dims: int) -> tuple[int, int]:
    width = math.prod(x.shape[x.dim() - dims :])
    return x.numel() // width, width


def _steps(tensors: list[Tensor | None], dims: int) -> tuple[list, tuple[int, int], list]:
    """The tensors, as copies without gaps where there is no other way; (n1, n2); their strides,
    zero for one that is None."""
    there = [t for t in tensors if t is not None]
    found = steps(there, dims)
    if found is None:
        tensors = [None if t is None else t.contiguous() for t in tensors]
        found = steps([t for t in tensors if t is not None], dims)
    strides = iter(found.strides)
    return tensors, found[:2], [(0, 0, 0) if t is None else next(strides) for t in tensors]


def _dense(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


def _accumulator(x: Tensor) -> tuple[torch.dtype, tl.dtype]:
    """The type in which everything is computed, for torch and for Triton."""
    double = x.dtype == torch.float64
    return (torch.float64, tl.float64) if double else (torch.float32, tl.float32)


class Chip(NamedTuple):
    """The limits of programs that run at once: multiprocessors, and the memory of one in bytes."""

    multiprocessors: int
    shared_memory: int


@functools.cache
def _chip(device: torch.device) -> Chip:
    if device.type != "cuda":  # the interpreter's: few enough for every program to loop
        return Chip(1, 2**17)
    found = torch.cuda.get_device_properties(device)
    return Chip(found.multi_processor_count, getattr(found, "shared_memory_per_block_optin", 0))


def _on(device: torch.device) -> AbstractContextManager:
    """Triton launches on the current device, which need not be the tensors' own."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
