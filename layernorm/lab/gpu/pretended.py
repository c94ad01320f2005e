"""A pretended GPU: a dry run, on this processor, of the commands for a GPU.

Everything that asks for the device `cuda` gets the processor, Triton's kernels run in Triton's
interpreter, torch's compiler makes no program of what it has traced, and cases are made small.
Clocks and graphs do as little as they must. What comes of it has this device's name in its records,
and `layernorm records add` refuses them.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from layernorm.lab.benchmarks.measure.case import Case
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.records.environment import PRETENDED

RECURRENT = (3, 2, 4, 8)  # at most, of a recurrent layer's shape
FEW = {"rounds": 6, "sample_seconds": 1e-7, "processes": 1}
ILLEGAL = "CUDA error: an illegal memory access was encountered"


class Gpu:
    """The state of the device: an illegal access makes it useless to this process."""

    useless = False

    @classmethod
    def check(cls, *_: Any) -> None:
        if cls.useless:
            raise RuntimeError(ILLEGAL)

    @classmethod
    def break_(cls) -> None:
        """An illegal access."""
        cls.useless = True
        cls.check()


class _Event:
    def __init__(self, enable_timing: bool = False):
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return False

    def elapsed_time(self, end: _Event) -> float:
        return 1000 * (end.at - self.at)


class _Graph:
    """Keeps all that was computed while it was captured."""

    def replay(self) -> None:
        Gpu.check()


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.device:  # its name stays; tensors are made elsewhere
            return function(*args, **(kwargs or {}))
        given = {name: _moved(value) for name, value in (kwargs or {}).items()}
        return function(*map(_moved, args), **given)


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


def install() -> None:
    """Pretend, in this process, from now on.

    Raises:
        RuntimeError: there is a GPU, or Triton was imported before, not to be interpreted.
    """
    if torch.cuda.is_available():
        raise RuntimeError("there is a GPU here; a dry run is for machines without one")
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    from layernorm.kernels import launch

    if not launch.INTERPRETED:
        raise RuntimeError("Triton was imported before the dry run began; begin it in a process of "
                           "its own")  # fmt: skip
    properties = SimpleNamespace(L2_cache_size=4096, total_memory=2**34, multi_processor_count=4,
                                 major=8, minor=0)  # fmt: skip
    cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: PRETENDED,
        "get_device_properties": lambda *_: properties,
        "synchronize": Gpu.check,
        "empty_cache": lambda: None,
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 1,
        "reset_peak_memory_stats": lambda *_: None,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "Event": _Event,
        "Stream": lambda *_: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda *_: SimpleNamespace(wait_stream=lambda other: None),
        "stream": lambda stream: nullcontext(),
        "device": lambda device: nullcontext(),
        "CUDAGraph": _Graph,
        "graph": _captured,
        "is_current_stream_capturing": lambda: False,
        "_sleep": lambda cycles: None,
    }
    for name, value in cuda.items():
        setattr(torch.cuda, name, value)
    torch.compile = partial(torch.compile, backend="eager")  # a program for a GPU takes minutes
    _OnCpu().__enter__()


def compute_anew() -> None:
    """Let trainers compute anew what a GPU's graph would replay."""
    from layernorm.lab.experiments import graphed

    graphed.capture = lambda function, device, memory: function


@contextmanager
def _captured(graph: _Graph, **_: Any):
    yield


def small(plan: Plan) -> Plan:
    """The plan's cases, so small that a processor goes through all of them in minutes; those that
    then are the same, once."""
    return tuple(dict.fromkeys(_small(case) for case in plan))


def _small(case: Case) -> Case:
    first, *sizes = case.shape
    if case.operation in ("lstm", "gru"):
        shape = tuple(map(min, case.shape, RECURRENT))
    elif case.benchmark == "training":  # the last size is the number of classes
        shape = (min(first, 4), *(min(size, 8) for size in sizes[:-1]), sizes[-1])
    else:
        shape = (min(first, 4), *(min(size, 16) for size in sizes))
    return replace(case, shape=shape, **FEW)
