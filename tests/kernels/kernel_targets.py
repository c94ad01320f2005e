"""Run as a program, not interpreted: compile the kernels for other GPUs than an H100, none of which
need be here, and print for each case the memory on chip, the bytes that registers have no room for,
barriers and loads.

    python tests/kernels/kernel_targets.py            # the cases of test_targets.py, as JSON
    python tests/kernels/kernel_targets.py 75 86      # all forms and types, as a table: minutes
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator

import torch
from kernel_compile import CHIPS, loop, on, step  # first: it turns the interpreter off

from layernorm.lab.analysis.compiled import TYPES, backward, forward
from layernorm.recurrent.gpu import persistent
from layernorm.recurrent.variants import FORMS

BOTH = ("forward", "backward")
KINDS = ("fp32", "fp16", "bf16")
UNITS = (128, 256, 512, 1024)
FAR = (75, 80, 89, 100)  # where rows of 4096 are compiled
OTHER, LONG = ("per_gate", "gru"), ("paper", "gru")  # forms, at 512 units and at 4096
NORMED = ("joint", "per_gate", "carried")  # the other LSTMs that have norms before the gates
Case = tuple[str, str, str, int, str, int]  # what, direction, form, size, type, target

CASES: list[Case] = [
    *(("step", d, form, 512, "bf16", 75) for d in BOTH for form in FORMS),
    *(("step", d, "paper", 512, "bf16", arch) for d in BOTH for arch in (80, 86, 89, 100)),
    *(("step", d, form, 512, "bf16", arch) for d in BOTH for form in OTHER for arch in (80, 89)),
    *(("step", d, form, 4096, "bf16", arch) for d in BOTH for form in LONG for arch in FAR),
    *(("step", "backward", form, 4096, "bf16", arch) for form in NORMED for arch in FAR),
    ("step", "backward", "per_gate", 4096, "fp32", 75),
    ("step", "backward", "carried", 4096, "fp32", 100),
    *(("loop", d, "paper", 0, "fp16", arch) for d in BOTH for arch in (75, 80, 86, 89, 100)),
    *(("loop", d, "gru", 0, "bf16", arch) for d in BOTH for arch in (75, 86)),
    *(("loop", d, "paper", 0, "fp32", 86) for d in BOTH),
    *(("loop", "forward", form, 256, "fp16", 89) for form in ("joint", "per_gate")),
    ("loop", "forward", "gru", 256, "fp16", 80),
    ("loop", "backward", "gru", 256, "fp16", 100),
    *(("norm", "backward", "layer", 16384, "bf16", arch) for arch in (75, 80, 86, 100)),
]  # a loop of size 0: of as many units as the library takes in one kernel there


def most(form: str, kind: str, arch: int) -> int:
    """The most of `UNITS` whose weights the library holds on a GPU of this kind; 0: none."""
    gates = FORMS[form].gates

    def weights(units: int) -> torch.Tensor:
        return torch.empty(gates * units, units, dtype=TYPES[kind], device="meta")

    with on(arch):
        fitting = [n for n in UNITS if persistent.unsupported(weights(n), (64, 64)) is None]
    return max(fitting, default=0)


def facts(case: Case) -> dict:
    """A kernel once compiled, and the number of units for which it was."""
    what, direction, form, size, kind, arch = case
    if what == "norm":
        return {"forward": forward, "backward": backward}[direction](size, kind, arch, True)
    made: Callable = {"step": step, "loop": loop}[what]
    size = size or most(form, kind, arch)
    return made(direction, form, size, kind, arch) | {"units": size}


def every(targets: Iterable[int]) -> Iterator[Case]:
    """All forms, types and directions for these targets."""
    for arch in targets:
        for kind in KINDS:
            for d in BOTH:
                yield from (("step", d, form, 512, kind, arch) for form in FORMS)
                yield from (("loop", d, form, 0, kind, arch) for form in FORMS)
                yield from (("norm", d, "layer", n, kind, arch) for n in (1024, 16384))


def table(targets: Iterable[int]) -> None:
    """A line for each case, as soon as it is known."""
    columns = ("units", "warps", "registers", "spilled", "shared")
    print("| target | kernel | direction | form | type |", " | ".join(columns), "|")
    print("|---" * (5 + len(columns)) + "|")
    for case in every(targets):
        what, direction, form, size, kind, arch = case
        found = {"units": size, **facts(case)}
        line = [arch, what, direction, form, kind, *(found[name] for name in columns)]
        print("|", " | ".join(map(str, line)), "|", flush=True)


if __name__ == "__main__":
    if targets := [int(word) for word in sys.argv[1:]]:
        table(targets)
    else:
        found = {" ".join(map(str, case)): facts(case) for case in CASES}
        units = {f"{arch} {kind}": most("paper", kind, arch) for arch in CHIPS for kind in KINDS}
        json.dump({"kernels": found, "units": units}, sys.stdout)
