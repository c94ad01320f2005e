"""Run as a program, not interpreted: compile all kernels for GPUs that need not be here, and print
for each case how it reads and writes memory, and the bytes that do not fit into registers."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from layernorm.kernels import launch, rows
from layernorm.lab.analysis.compiled import (
    LONG,
    TYPES,
    accumulator,
    backward,
    compiled,
    forward,
    itemsize,
    room,
)
from layernorm.recurrent.gpu import gru_kernels, lstm_kernels, persistent, persistent_kernels
from layernorm.recurrent.gpu import sums as of_columns
from layernorm.recurrent.gpu.step import launch_options
from layernorm.recurrent.variants import FORMS

# Multiprocessors by compute capability: a T4, an A100, an RTX 3090, an RTX 4090, an H100, a B200.
COUNTS = {75: 40, 80: 108, 86: 82, 89: 128, 90: 132, 100: 148}
CHIPS = {arch: launch.Chip(count, room(arch)) for arch, count in COUNTS.items()}
WIDTHS = (256, 1000, 1024, 4096, 8192, 16384)


CASES = [
    *((d, n, "bf16", 90, True) for d in (forward, backward) for n in WIDTHS),
    *((d, n, "fp32", 90, False) for d in (forward, backward) for n in (1024, 16384)),
    *((d, 1024, "bf16", arch, True) for d in (forward, backward) for arch in (75, 80, 89, 100)),
    *((d, 16384, "bf16", arch, True) for d in (forward, backward) for arch in (75, 80, 89, 100)),
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


def means(arch: int) -> dict:
    """The sums of rows longer than a block, backward."""
    width, kind = 65536, "bf16"
    cut = launch.tile(width, "backward", itemsize(kind))
    acc = accumulator(kind)
    pointers = dict.fromkeys(("dy", "x", "weight"), kind)
    pointers |= dict.fromkeys(("mean", "rstd", "along", "plain"), acc)
    return compiled(
        rows.gradient_means, arch, launch.options(cut, "backward", itemsize(kind)), pointers,
        ACC=getattr(tl, LONG[acc]), ROWS=cut.rows, BLOCK=cut.block, UNIT=launch.unit(width),
    )  # fmt: skip


def total(arch: int) -> dict:
    """The sums over programs, for gain and bias."""
    pointers = dict.fromkeys(("partial", "first", "second"), "fp32")
    return compiled(
        rows.add_up, arch, {"num_warps": 8}, pointers,
        ACC=tl.float32, ROWS=launch.PARTIAL_ROWS, BLOCK=launch.COLUMNS,
    )  # fmt: skip


def step(direction: str, form: str, units: int, kind: str, arch: int = 90) -> dict:
    acc = accumulator(kind)
    module = lstm_kernels if FORMS[form].cell else gru_kernels
    kernel = getattr(module, direction)
    of_inputs = ("a", "before", "y", "dy", "dh", "dsums", "gain", "gain_c", "shift_c")
    pointers = dict.fromkeys(kernel.arg_names[: kernel.arg_names.index("at")], acc)
    pointers |= {name: kind for name in of_inputs if name in pointers}
    terms = FORMS[form].terms
    missing = {2: {"shift"}, 1: {"z"}, 0: {"z", "gain"}}[terms] if FORMS[form].cell else set()
    missing = missing | {"row"}  # each program finds its own
    options = launch_options(FORMS[form], units, getattr(tl, LONG[acc]))
    warps = {"num_warps": options.pop("num_warps")}
    if direction == "forward":
        options["EPS"] = 1e-5
    return compiled(kernel, arch, warps, pointers, missing, {"units": units}, **options)


def loop(direction: str, form: str, units: int, kind: str, arch: int = 90) -> dict:
    """All steps in one kernel, of 64 sequences; 90: on an H100. `product`: the loads of 16 bytes
    that a thread needs for its share of the weights and of a tile."""
    this, acc, of_cell = FORMS[form], accumulator(kind), {"gain_c", "shift_c", "c_n", "dc", "dcell"}
    kernel, width = getattr(persistent_kernels, f"{direction}_steps"), this.gates * units
    names = kernel.arg_names[: kernel.arg_names.index("begin")]
    of_inputs = ("w", "a", "before", "y", "dy", "dh", "dsums", "gain", "gain_c", "shift_c")
    pointers = dict.fromkeys(names, acc) | {"arrived": "i32"}
    pointers |= {name: kind for name in of_inputs if name in pointers}
    missing = {2: {"shift", "z_new"}, 1: {"z", "z_new"}, 0: {"z", "z_new", "gain"}}[this.terms]
    shape = (units, width) if direction == "forward" else (width, units)
    w = torch.empty(width, units, dtype=TYPES[kind], device="meta")
    with on(arch):
        cut = persistent._cut(w, 64, *shape)
    options = launch_options(this, units, getattr(tl, LONG[acc])) | persistent.constants(cut, this)
    warps = {name: options.pop(name) for name in ("num_warps", "num_stages")}
    options |= {"REVERSE": False, "PRODUCT": True, "GATED": True}
    if direction == "forward":
        options |= {"EPS": 1e-5, "ADD": this.terms < 2}
    missing = (missing if this.cell else of_cell) & set(names)
    found = compiled(kernel, arch, warps, pointers, missing, {"units": units}, **options)
    depth = cut.pieces * persistent.PARTS * cut.deep
    read = depth * (cut.columns + persistent.ROWS) * itemsize(kind)
    return found | {"product": read // (16 * 32 * warps["num_warps"])}


class Asked(Exception):
    """In place of what Triton's compiler makes."""


def elsewhere(target: tuple[str, int | str, int], make: Callable[..., dict], *case) -> Any:
    """What Triton makes of a case for another target: its kind, its name, the threads of a warp."""
    with mock.patch.object(triton, "compile", side_effect=Asked) as call, suppress(Asked):
        make(*case)
    options = call.call_args.kwargs["options"]
    return triton.compile(call.call_args.args[0], target=GPUTarget(*target), options=options)


@contextmanager
def on(arch: int):
    """The library takes tensors to be on a GPU of this compute capability."""
    with (
        mock.patch.object(launch, "_chip", return_value=CHIPS[arch]),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=divmod(arch, 10)),
        mock.patch.object(persistent, "_least", persistent._least.__wrapped__),
    ):
        yield


def sums(kind: str) -> dict:
    acc = accumulator(kind)
    pointers = dict.fromkeys(("dy", "mean", "rstd", "plain", "along"), acc) | {"a": kind}
    constants = {"ACC": getattr(tl, LONG[acc]), "ROWS": of_columns.ROWS}
    constants |= {"BLOCK": of_columns.COLUMNS}
    return compiled(of_columns.partial_sums, 90, {"num_warps": 4}, pointers, **constants)


STEPS = {
    f"{direction} {form} {units} {kind}": (direction, form, units, kind)
    for direction in ("forward", "backward")
    for form, units, kind in (
        ("paper", 512, "bf16"),
        ("paper", 1000, "bf16"),
        ("paper", 1024, "fp32"),
        ("gru", 1024, "bf16"),
        ("paper", 4096, "bf16"),
        ("joint", 4096, "bf16"),
        ("per_gate", 4096, "bf16"),
        ("gru", 4096, "bf16"),
        ("cell_only", 64, "fp16"),
    )
}

LOOPS = {
    f"{direction} {form} {units} {kind}": (direction, form, units, kind)
    for direction in ("forward", "backward")
    for form, units, kind in (("paper", 512, "bf16"), ("paper", 1024, "fp16"),
                              ("per_gate", 256, "bf16"), ("gru", 1024, "bf16"))
}  # fmt: skip


if __name__ == "__main__":
    norms = {name(case): case[0](*case[1:]) for case in CASES}
    steps = {name: step(*case) for name, case in STEPS.items()}
    steps |= {"sums bf16": sums("bf16")}
    loops = {name: loop(*case) for name, case in LOOPS.items()}
    sums_of_norms = {f"means sm_{arch}": means(arch) for arch in (75, 80, 89, 90, 100)}
    sums_of_norms |= {f"total sm_{arch}": total(arch) for arch in (75, 80, 89, 90, 100)}
    found = {"norms": norms, "sums": sums_of_norms, "steps": steps, "loops": loops}
    json.dump(found, sys.stdout)
