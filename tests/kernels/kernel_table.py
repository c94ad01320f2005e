"""Run as a program: the table of the compiled norms.

    python tests/kernels/kernel_table.py 90 bf16 1024 4096

Arguments: the GPU's compute capability, the type, widths. `programs` fit on one multiprocessor at
once; `each` is a thread's instructions for an element, backward of the loop over tiles.
"""

import sys

from layernorm.kernels import launch

COLUMNS = (
    "warps", "registers", "spilled", "shared", "barriers", "conversions", "wide loads",
    "narrow loads", "programs", "stages", "each",
)  # fmt: skip


def row(direction: str, width: int, kind: str, arch: int) -> list:
    """A line of the table."""
    from layernorm.lab.analysis import compiled

    found = getattr(compiled, direction)(width, kind, arch, True)
    cut = launch.tile(width, direction, compiled.itemsize(kind))
    tile = f"{cut.rows} x {cut.block}"
    return [direction, kind, width, tile, *(found.get(name, "") for name in COLUMNS)]


if __name__ == "__main__":
    arch, kind, *widths = sys.argv[1:]
    print("| direction | type | width | tile |", " | ".join(COLUMNS), "|")
    print("|---" * (4 + len(COLUMNS)) + "|")
    for direction in ("forward", "backward"):
        for width in widths:
            line = row(direction, int(width), kind, int(arch))
            print("|", " | ".join(map(str, line)), "|", flush=True)
