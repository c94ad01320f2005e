"""Run as a program, not interpreted: compile kernels for AMD's MI300, which need not be here, and
print for each the threads of a program, the bytes of its code and on chip, and the registers for
which there is no room.

The kernels of all steps in one launch are left out: `persistent` refuses AMD's GPUs."""

import json
import re
import sys
from unittest import mock

import torch
from kernel_compile import elsewhere, step  # first: it turns the interpreter off

from layernorm.lab.analysis import compiled

TARGET = ("hip", "gfx942", 64)
ROOM = 64 * 1024  # bytes on chip
CASES = {
    f"{make.__name__} {width} bf16": (make, width, "bf16", 90, True)
    for make, width in (
        (compiled.forward, 1024),
        (compiled.forward, 32768),
        (compiled.backward, 1024),
        (compiled.backward, 16384),
    )
} | {
    f"{direction} {form} {units} bf16": (step, direction, form, units, "bf16")
    for form, units in (("paper", 512), ("gru", 1024), ("per_gate", 4096))
    for direction in ("forward", "backward")
}


def facts(*case) -> dict[str, int]:
    """What becomes of a kernel."""
    with (  # the library takes such a GPU to be here
        mock.patch.object(torch.version, "hip", "6.4"),
        mock.patch.object(compiled, "room", return_value=ROOM),
    ):
        made = elsewhere(TARGET, *case)
    return {
        "threads": made.metadata.num_warps * TARGET[2],
        "code": len(made.asm["hsaco"]),
        "shared": made.metadata.shared,
        "spilled": int(re.search(r"vgpr_spill_count: (\d+)", made.asm["amdgcn"])[1]),
    }


if __name__ == "__main__":
    json.dump({name: facts(*case) for name, case in CASES.items()}, sys.stdout)
