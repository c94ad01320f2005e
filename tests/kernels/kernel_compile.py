"""Run as a program, not interpreted: compile all kernels for GPUs that need not be here, and print
for each case how it reads and writes memory, and the bytes that do not fit into registers."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)

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


def compiled(kernel, arch: int, warps: int, pointers: dict, missing=(), **constants) -> dict:
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
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(made.asm["ptx"])
        suffix = "a" if arch >= 90 else ""
        command = [PTXAS, "-v", f"--gpu-name=sm_{arch}{suffix}", file, "-o", f"{file}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return {
        "spilled": int(re.search(r"(\d+) bytes spill stores", told)[1]),
        "registers": int(re.search(r"Used (\d+) registers", told)[1]) * 32 * warps,
        "shared": made.metadata.shared,
        "wide": len(re.findall(r"(ld|st)\.global\.v4|cp\.async\.cg", made.asm["ptx"])),
        "asynchronous": "cp.async" in made.asm["ptx"],
    }


def forward(width: int, kind: str, arch: int, centered: bool) -> dict:
    cut = launch.tile(width, "forward")
    pointers = dict.fromkeys(("x", "residual", "weight", "bias", "y", "total"), kind)
    acc = _accumulator(kind)
    return compiled(
        rows.forward, arch, cut.warps, pointers | dict.fromkeys(("mean", "rstd"), acc),
        () if centered else ("mean", "bias"), EPS=1e-5, ACC=getattr(tl, _LONG[acc]),
        CENTERED=centered, RESIDENT=cut.resident, ROWS=cut.rows, BLOCK=cut.block,
    )  # fmt: skip


def backward(width: int, kind: str, arch: int, centered: bool) -> dict:
    cut = launch.tile(width, "backward")
    pointers = dict.fromkeys(("dy", "x", "weight", "dx"), kind)
    acc = _accumulator(kind)
    sums = ("mean", "rstd", "along", "plain", "dweight", "dbias")
    missing = {"dtotal"} | ({"along", "plain"} if cut.resident else set())
    missing |= set() if centered else {"mean", "plain", "dbias"}
    return compiled(
        rows.backward, arch, cut.warps, pointers | dict.fromkeys(sums, acc), missing,
        ACC=getattr(tl, _LONG[acc]), CENTERED=centered, RESIDENT=cut.resident, ROWS=cut.rows,
        BLOCK=cut.block, STAGES=2, t0=16, t1=16, t2=16,
    )  # fmt: skip


_LONG = {"fp32": "float32", "fp64": "float64"}


def _accumulator(kind: str) -> str:
    return "fp64" if kind == "fp64" else "fp32"


CASES = [
    (forward, 4096, "bf16", 90, True),
    (forward, 1024, "fp32", 80, False),
    (forward, 65536, "fp16", 90, True),
    (backward, 4096, "bf16", 90, True),
    (backward, 1024, "fp32", 80, False),
    (backward, 65536, "fp32", 90, True),
    (forward, 1024, "bf16", 75, True),  # Colab's T4, which has no instructions for bfloat16
    (backward, 1024, "bf16", 75, True),
]


def name(case: tuple) -> str:
    direction, width, kind, arch, centered = case
    return f"{direction.__name__} {width} {kind} sm_{arch} {'layer' if centered else 'rms'}"


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
    warps = options.pop("num_warps")
    if direction == "forward":
        options["EPS"] = 1e-5
    return compiled(kernel, 90, warps, pointers, missing, **options)


def sums(kind: str) -> dict:
    acc = _accumulator(kind)
    pointers = dict.fromkeys(("dy", "mean", "rstd", "plain", "along"), acc) | {"a": kind}
    constants = {"ACC": getattr(tl, _LONG[acc]), "ROWS": of_columns.ROWS}
    return compiled(of_columns.partial_sums, 90, 4, pointers, BLOCK=of_columns.COLUMNS, **constants)


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
