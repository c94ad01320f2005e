"""The machine and software of a run. None of it is part of the promise that results repeat."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layernorm

PRETENDED = "pretended GPU"  # of a dry run: its records are never published


def environment() -> dict[str, Any]:
    """Processor, GPUs, threads, versions and the commit of the package's checkout (or None)."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
        "commit": _commit(),
    }


@cache
def _cpu() -> str:
    """The processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


@cache
def _commit() -> str | None:
    """The commit, with "-dirty" where tracked files were changed; None outside a checkout."""
    folder = Path(layernorm.__file__).parent

    def git(*command: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *command], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        # An installed package may lie inside another project's checkout.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None
