"""Run as a program, not interpreted: compile all kernels for GPUs that need not be here, and print
for each case how it reads and writes memory, and the bytes that do not fit into registers."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
import triton.backends.nvidia
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from layernorm.kernels import launch, rows
from layernorm.recurrent.gpu import gru_kernels, lstm_kernels
from layernorm.recurrent.gpu import sums as of_columns
from layernorm.recurrent.gpu.step import launch_options
from layernorm.recurrent.variants import FORMS

PTXAS = Path(triton.backends.nvidia.__file__).parent / "bin" / "ptxas"


def compiled(kernel, arch: int, options: dict, pointers: dict, missing=(), **constants) -> dict:
    """As the launcher compiles it for contiguous rows that begin at multiples of 16 bytes."""
    constants |= dict.fromkeys(missing) | {"n1": 1, "n2": 1}
    signature, attributes = {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        signature[name] = f"*{pointers[name]}" if name in pointers else "i32"
        if name not in ("rows", "count", "at", "following", "going"):
            attributes[(i,)] = [["tt.divisibility", 16]]
    known = {(i,): constants[name] for i, name in enumerate(kernel.arg_names) if name in constants}
    source = ASTSource(fn=kernel, signature=signature, constexprs=known, attrs=attributes)
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    ptx, threads = made.asm["ptx"], 32 * options["num_warps"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        suffix = "a" if arch >= 90 else ""
        ptxas = PTXAS if arch < 100 else PTXAS.with_name("ptxas-blackwell")
        command = [ptxas, "-v", f"--gpu-name=sm_{arch}{suffix}", file, "-o", f"{file}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        read = [PTXAS.with_name("nvdisasm"), "-c", f"{file}.cubin"]
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
        "wide stores": len(re.findall(r"st\.global\S*\.v4", ptx)),
        "each": round(in_a_tile(sass) * threads / elements, 1),
        "programs": fitting(arch, registers, threads, made.metadata.shared),
        "asynchronous": "cp.async" in ptx,
    }


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
    warps, kilobytes = {75: (32, 64), 80: (64, 164), 89: (48, 100)}.get(arch, (64, 228))
    by_registers = 65536 // (-(-registers // 8) * 8 * threads)
    return min(by_registers, 32 * warps // threads, kilobytes * 1024 // (shared + 1024), 32)


def forward(width: int, kind: str, arch: int, centered: bool, residual: bool = False) -> dict:
    cut = launch.tile(width, "forward", itemsize(kind))
    pointers = dict.fromkeys(("x", "residual", "weight", "bias", "y", "total"), kind)
    acc = _accumulator(kind)
    missing = set() if residual else {"residual", "total"}
    missing |= set() if centered else {"mean", "bias"}
    return compiled(
        rows.forward, arch, launch.options(cut, "forward", itemsize(kind)),
        pointers | dict.fromkeys(("mean", "rstd"), acc), missing, EPS=1e-5,
        ACC=getattr(tl, _LONG[acc]), CENTERED=centered, RESIDENT=cut.resident,
        WHOLE=width % cut.block == 0, EARLY=cut.block * itemsize(kind) <= launch.EARLY,
        ROWS=cut.rows, BLOCK=cut.block,
    )  # fmt: skip


def backward(width: int, kind: str, arch: int, centered: bool, residual: bool = False) -> dict:
    x = torch.empty(0, dtype=_TYPES[kind])
    cut = launch.tile(width, "backward", itemsize(kind))
    chip = launch.Chip(1, {75: 64, 80: 163, 89: 99}.get(arch, 227) * 1024)
    with mock.patch.object(launch, "_chip", return_value=chip):
        planned, stages = launch.plan(cut, 10**6, cut.block, x, residual)
    pointers = dict.fromkeys(("dy", "dtotal", "x", "weight", "dx"), kind)
    acc = _accumulator(kind)
    sums = ("mean", "rstd", "along", "plain", "dweight", "dbias")
    missing = {"along", "plain"} if cut.resident else set()
    missing |= set() if residual else {"dtotal"}
    missing |= set() if centered else {"mean", "plain", "dbias"}
    return compiled(
        rows.backward, arch, launch.options(cut, "backward", itemsize(kind)),
        pointers | dict.fromkeys(sums, acc), missing, ACC=getattr(tl, _LONG[acc]),
        CENTERED=centered, RESIDENT=cut.resident, WHOLE=width % cut.block == 0,
        HELD=cut.block <= launch.HELD, ROWS=cut.rows,
        BLOCK=cut.block, STAGES=stages,
    ) | {"planned": planned, "stages": stages}  # fmt: skip


def itemsize(kind: str) -> int:
    return _TYPES[kind].itemsize


_TYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64
}  # fmt: skip
WIDTHS = (256, 1000, 1024, 4096, 8192, 16384)
_LONG = {"fp32": "float32", "fp64": "float64"}


def _accumulator(kind: str) -> str:
    return "fp64" if kind == "fp64" else "fp32"


CASES = [
    *((d, n, "bf16", 90, True) for d in (forward, backward) for n in WIDTHS),
    *((d, n, "fp32", 90, False) for d in (forward, backward) for n in (1024, 16384)),
    *((d, 1024, "bf16", arch, True) for d in (forward, backward) for arch in (75, 80, 89, 100)),
    *((d, 16384, "bf16", arch, True) for d in (forward, backward) for arch in (75, 89)),
    *((d, n, "bf16", 90, True, True) for d in (forward, backward) for n in (1024, 4096, 16384)),
    (forward, 65536, "fp16", 90, True),
    (backward, 65536, "fp32", 90, True),
    (backward, 16384, "fp32", 90, True),
]


def name(case: tuple) -> str:
    direction, width, kind, arch, centered, *residual = case
    norm = "layer" if centered else "rms"
    norm += " residual" if residual else ""
    return f"{direction.__name__} {width} {kind} sm_{arch} {norm}"


def step(direction: str, form: str, units: int, kind: str) -> dict:
    acc = _accumulator(kind)
    module = lstm_kernels if FORMS[form].cell else gru_kernels
    kernel = getattr(module, direction)
    of_inputs = ("a", "before", "y", "dy", "dh", "dsums", "gain", "gain_c", "shift_c")
    pointers = dict.fromkeys(kernel.arg_names[: kernel.arg_names.index("at")], acc)
    pointers |= {name: kind for name in of_inputs if name in pointers}
    terms = FORMS[form].terms
    missing = {2: {"shift"}, 1: {"z"}, 0: {"z", "gain"}}[terms] if FORMS[form].cell else set()
    options = launch_options(FORMS[form], units, getattr(tl, _LONG[acc]))
    warps = {"num_warps": options.pop("num_warps")}
    if direction == "forward":
        options["EPS"] = 1e-5
    return compiled(kernel, 90, warps, pointers, missing, **options)


def sums(kind: str) -> dict:
    acc = _accumulator(kind)
    pointers = dict.fromkeys(("dy", "mean", "rstd", "plain", "along"), acc) | {"a": kind}
    constants = {"ACC": getattr(tl, _LONG[acc]), "ROWS": of_columns.ROWS}
    constants |= {"BLOCK": of_columns.COLUMNS}
    return compiled(of_columns.partial_sums, 90, {"num_warps": 4}, pointers, **constants)


STEPS = {
    f"{direction} {form} {units} {kind}": (direction, form, units, kind)
    for direction in ("forward", "backward")
    for form, units, kind in (
        ("paper", 512, "bf16"),
        ("paper", 1024, "fp32"),
        ("gru", 1024, "bf16"),
        ("per_gate", 4096, "bf16"),
        ("cell_only", 64, "fp16"),
    )
}


if __name__ == "__main__":
    norms = {name(case): case[0](*case[1:]) for case in CASES}
    steps = {name: step(*case) for name, case in STEPS.items()}
    json.dump({"norms": norms, "steps": steps | {"sums bf16": sums("bf16")}}, sys.stdout)
