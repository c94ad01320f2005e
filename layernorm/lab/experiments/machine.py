"""The machine that runs are made on: its device, cores and memory."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator

import torch
from torch import nn


def device_of(name: str) -> torch.device:
    """`auto` is the GPU if there is one. Raises `ValueError` for a device that is not here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' is not here: torch finds no GPU; use auto or cpu")
    return torch.device(name)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_number(name: str, value: int) -> None:
    """Refuse a number of workers or threads that is below 1 or beyond reason."""
    most = max(64, 4 * cores())
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most} on {cores()} cores, got {value}")


def memory(device: torch.device) -> float:
    """The bytes that the device has; infinite where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


@contextlib.contextmanager
def within_memory(device: torch.device) -> Iterator[None]:
    """Refuse, while a model is made, parameters that cannot be trained: beside each one lie its
    gradient and Adam's two averages. A layer registers its parameters before it fills them.

    Raises `ValueError`.
    """
    need, most = 0, memory(device)

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal need
        need += 0 if parameter is None else 4 * parameter.numel() * parameter.element_size()
        if need > most:
            raise ValueError(
                f"training this model takes more than {need / 2**30:,.1f} GiB of memory, this "
                f"machine has {most / 2**30:,.1f} GiB; choose smaller sizes"
            )

    hook = nn.modules.module.register_module_parameter_registration_hook(count)
    try:
        yield
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        raise ValueError(f"this model is too large ({error}); choose smaller sizes") from None
    finally:
        hook.remove()
