"""Run as a program: `python -m layernorm.lab.gpu` on a GPU that is not there, with one more step,
`broken`, in which our kernel makes an illegal access, one, `killed`, that ends its process, and for
each step one, `some_…`, of its first case of each operation."""

import os
import signal
import sys
from dataclasses import replace

from layernorm.lab.gpu import __main__ as entry
from layernorm.lab.gpu import parts, pretended, steps


def illegal(**inputs):
    pretended.Gpu.break_()


def killed(**inputs):
    os.kill(os.getpid(), signal.SIGKILL)


def broken(function, step):
    """The layer norms of four rows, each with our kernel replaced."""

    def plan(device):
        cases = steps._targets(device, [(4, 8)], ("forward", "backward"), ("layer", "rms"))
        return tuple(
            replace(
                case,
                profile=step,
                source=replace(
                    case.source, implementations={**case.source.implementations, "triton": function}
                ),
            )
            for case in cases
            if case.dtype == "float32" and (case.operation, case.mode) != ("rms", "backward")
        )

    return plan


def some(step):
    def plan(device):
        first = {}
        for case in step(device):
            first.setdefault((case.benchmark, case.operation), case)
        return tuple(first.values())

    return plan


if __name__ == "__main__":
    steps.STEPS |= {f"some_{name}": some(step) for name, step in steps.STEPS.items()}
    steps.STEPS |= {"broken": broken(illegal, "broken"), "killed": broken(killed, "killed")}
    parts.PROGRAM = (sys.executable, __file__)
    parts.GRACE = 600.0
    sys.exit(entry.main())
