"""Run as a program, not interpreted: compile the recurrent kernels for a GPU that need not be here,
and print for each case how it reads and writes memory, and the bytes that do not fit into
registers."""

import json
import sys

import triton.language as tl
from kernels.kernel_compile import _LONG, _accumulator, compiled

from layernorm.recurrent.gpu import gru_kernels, lstm_kernels
from layernorm.recurrent.gpu import sums as of_columns
from layernorm.recurrent.gpu.step import launch_options
from layernorm.recurrent.variants import FORMS


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


CASES = {
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
    found = {name: step(*case) for name, case in CASES.items()}
    json.dump(found | {"sums bf16": sums("bf16")}, sys.stdout)
