"""The package's kernels, compiled for GPUs that need not be here: how a kernel reads memory, what a
thread keeps, how many programs a multiprocessor holds at once.

    python -m layernorm.lab.analysis.compiled forward bf16 90 1024 4096

prints a line of JSON for each width: layer normalization with gain and bias, of that direction and
type, for that compute capability. It takes Triton's compiler and no GPU. A process that interprets
Triton's kernels cannot compile them; `norms` asks another one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

if TYPE_CHECKING:
    import pandas

# Of a GPU's data sheet, by compute capability: warps and kilobytes that a multiprocessor holds.
LIMITS = {75: (32, 64), 80: (64, 164), 86: (48, 100), 89: (48, 100), 90: (64, 228), 100: (64, 228)}

# Of an H200: its memory's bytes a second, multiprocessors, cycles a second under load, instructions
# that a multiprocessor issues in a cycle, for one thread each.
MEMORY, COUNT, CLOCK, ISSUED = 4.8e12, 132, 1.755e9, 128
PACES = ("bytes, µs", "issue, µs")

ANY = ("rows", "count", "at", "following", "going", "begin", "end", "steps")  # not of 16s


def norms(direction: str, widths: Sequence[int], kind: str = "bf16", arch: int = 90) -> list[dict]:
    """Compile a norm at each width in a process of its own; return what became of each.

    Args:
        direction: forward or backward.
        kind: bf16, fp16, fp32 or fp64.
        arch: the compute capability, 90 for Hopper.

    Raises:
        RuntimeError: it did not compile; says why.
    """
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", __name__, direction, kind, str(arch), *map(str, widths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the kernels did not compile: {done.stderr.strip()[-1000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def frame(widths: Sequence[int], count: int, kind: str = "bf16") -> pandas.DataFrame:
    """Both directions of a norm at each width: loads, registers, programs of a multiprocessor, and
    the least time of so many rows on an H200, by `paces`."""
    import pandas

    columns = ["direction", "width", "wide loads", "narrow loads", "warps", "registers", "programs"]
    lines = [
        {"direction": direction, **one, **paces(one, direction, count, kind)}
        for direction in ("forward", "backward")
        for one in (norms(direction, widths, kind) if widths else [])
    ]
    return pandas.DataFrame(lines, columns=[*columns, *PACES]).round(1)


def compiled(
    kernel: Any, arch: int, options: dict, pointers: dict, missing=(), sizes=None, **constants
) -> dict[str, Any]:
    """As the launcher compiles it for tensors that begin at multiples of 16 bytes. Numbers that are
    not among `sizes` are multiples of 16."""
    import triton
    import triton.backends.nvidia
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    tools = Path(triton.backends.nvidia.__file__).parent / "bin"
    constants |= dict.fromkeys(missing) | {"n1": 1, "n2": 1}
    signature, attributes = {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        signature[name] = f"*{pointers[name]}" if name in pointers else "i32"
        if name not in ANY and (sizes or {}).get(name, 16) % 16 == 0:
            attributes[(i,)] = [["tt.divisibility", 16]]
    known = {(i,): constants[name] for i, name in enumerate(kernel.arg_names) if name in constants}
    source = ASTSource(fn=kernel, signature=signature, constexprs=known, attrs=attributes)
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    ptx, threads = made.asm["ptx"], 32 * options["num_warps"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        suffix = "a" if arch >= 90 else ""
        ptxas = tools / ("ptxas" if arch < 100 else "ptxas-blackwell")
        command = [ptxas, "-v", f"--gpu-name=sm_{arch}{suffix}", file, "-o", f"{file}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        read = [tools / "nvdisasm", "-c", f"{file}.cubin"]
        sass = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    registers = int(re.search(r"Used (\d+) registers", told)[1])
    loads = re.findall(r"ld\.global\S*|cp\.async\.c[ag]\S* \[.*", ptx)
    wide = [load for load in loads if re.search(r"v4|v2\.b64|, 0x10|, 16", load)]
    elements = constants.get("ROWS", 1) * constants["BLOCK"]
    return {
        "warps": threads // 32,
        "registers": registers,
        "spilled": int(re.search(r"(\d+) bytes spill stores", told)[1]),
        "shared": made.metadata.shared,
        "barriers": len(re.findall(r"bar\.sync|barrier\.sync", ptx)),
        "conversions": made.asm["ttgir"].count("convert_layout"),
        "wide loads": len(wide),
        "narrow loads": len(loads) - len(wide),
        "evicted first": sum("L1::evict_first" in load for load in loads),
        "evicted last": sum("L1::evict_last" in load for load in loads),
        "wide stores": len(re.findall(r"st\.global\S*\.v4", ptx)),
        "each": round(in_a_tile(sass) * threads / elements, 1),
        "programs": fitting(arch, registers, threads, made.metadata.shared),
        "asynchronous": "cp.async" in ptx,
        "waits": len(re.findall(r"ld\.global\.gpu\.acquire", ptx)),
    }


def paces(found: dict, direction: str, count: int, kind: str = "bf16") -> dict[str, float]:
    """Return the µs that an H200 takes at least for rows of a norm: to move each number once, at
    its data sheet's speed, and to issue the instructions.

    Args:
        found: the norm compiled for 9.0, as `norms` tells it, of a width that stays on chip.
        direction: forward, where an element is read and written, or backward, which reads two.
        count: of rows.
        kind: the type, as in `norms`.
    """
    elements = count * found["width"]
    trips = {"forward": 2, "backward": 3}[direction]
    moved, issued = trips * itemsize(kind) / MEMORY, found["each"] / (COUNT * ISSUED * CLOCK)
    return dict(zip(PACES, (1e6 * elements * moved, 1e6 * elements * issued), strict=True))


def in_a_tile(sass: str) -> int:
    """Instructions of the longest loop, or of all where none goes around 20 lines."""
    lines, labels, longest = sass.split("\n"), {}, range(0)
    for i, line in enumerate(lines):
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = i
        back = labels.get(*re.findall(r"BRA.*`\((\.L_x_\d+)\)", line)[:1] or [""])
        if back is not None and i - back > max(20, len(longest)):
            longest = range(back, i)
    body = lines[longest.start : longest.stop] if longest else lines
    found = [re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP)\S", line) for line in body]
    return sum(map(bool, found))


def fitting(arch: int, registers: int, threads: int, shared: int) -> int:
    """The programs that a multiprocessor holds at once, by NVIDIA's tables of its limits."""
    warps, kilobytes = LIMITS[arch]
    by_registers = 65536 // (-(-registers // 8) * 8 * threads)
    return min(by_registers, 32 * warps // threads, kilobytes * 1024 // (shared + 1024), 32)


def forward(width: int, kind: str, arch: int, centered: bool, residual: bool = False) -> dict:
    """A norm, as `compiled` tells it."""
    import triton.language as tl

    from layernorm.kernels import launch, rows

    cut = launch.tile(width, "forward", itemsize(kind))
    pointers = dict.fromkeys(("x", "residual", "weight", "bias", "y", "total"), kind)
    acc = accumulator(kind)
    missing = set() if residual else {"residual", "total"}
    missing |= set() if centered else {"mean", "bias"}
    return compiled(
        rows.forward, arch, launch.options(cut, "forward", itemsize(kind)),
        pointers | dict.fromkeys(("mean", "rstd"), acc), missing,
        dict.fromkeys(("width", "x0", "r0"), width), UNIT=launch.unit(width), EPS=1e-5,
        ACC=getattr(tl, LONG[acc]), CENTERED=centered, RESIDENT=cut.resident,
        WHOLE=width % cut.block == 0, EARLY=cut.block * itemsize(kind) <= launch.EARLY,
        ROWS=cut.rows, BLOCK=cut.block,
    )  # fmt: skip


def room(arch: int) -> int:
    """Bytes on chip that a program may have: since 8.0 one kilobyte less than there are."""
    return (LIMITS[arch][1] - (arch >= 80)) << 10


def backward(width: int, kind: str, arch: int, centered: bool, residual: bool = False) -> dict:
    """A norm, as `compiled` tells it."""
    import triton.language as tl

    from layernorm.kernels import launch, rows

    x = torch.empty(0, dtype=TYPES[kind])
    cut = launch.tile(width, "backward", itemsize(kind))
    chip = launch.Chip(1, room(arch))
    with mock.patch.object(launch, "_chip", return_value=chip):
        planned, stages = launch.plan(cut, 10**6, cut.block, x, residual)
    pointers = dict.fromkeys(("dy", "dtotal", "x", "weight", "dx"), kind)
    acc = accumulator(kind)
    sums = ("mean", "rstd", "along", "plain", "dweight", "dbias")
    missing = {"along", "plain"} if cut.resident else set()
    missing |= set() if residual else {"dtotal"}
    missing |= set() if centered else {"mean", "plain", "dbias"}
    return compiled(
        rows.backward, arch, launch.options(cut, "backward", itemsize(kind)),
        pointers | dict.fromkeys(sums, acc), missing,
        dict.fromkeys(("width", "d0", "t0", "x0"), width), UNIT=launch.unit(width),
        ACC=getattr(tl, LONG[acc]), CENTERED=centered, RESIDENT=cut.resident,
        WHOLE=width % cut.block == 0, HELD=cut.block <= launch.HELD, ROWS=cut.rows,
        BLOCK=cut.block, STAGES=stages,
    ) | {"planned": planned, "stages": stages}  # fmt: skip


def itemsize(kind: str) -> int:
    """The bytes of a number."""
    return TYPES[kind].itemsize


TYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64
}  # fmt: skip
LONG = {"fp32": "float32", "fp64": "float64"}


def accumulator(kind: str) -> str:
    """The type in which sums of this type are formed."""
    return "fp64" if kind == "fp64" else "fp32"


def main(arguments: list[str]) -> None:
    """Print the lines."""
    direction, kind, arch, *widths = arguments
    for width in widths:
        found = {"forward": forward, "backward": backward}[direction](
            int(width), kind, int(arch), True
        )
        print(json.dumps({"width": int(width), **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
