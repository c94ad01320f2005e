"""The implementations of a normalization: definition, torch, its compiler, ours, and peers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from layernorm.lab.benchmarks.norms.operations import Function, Operation
from layernorm.lab.benchmarks.norms.peers import PEERS, MadeAnew

NOT_INSTALLED = "not installed"
NEEDS_CUDA = "needs a CUDA device"
COMPILED, OURS = "compile", "triton"
NOT_PEERS = ("definition", "torch", COMPILED, OURS)


def _layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from layernorm.kernels.layer_norm import layer_norm

    return layer_norm(x, x.shape[1:], weight, bias)


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    from layernorm.kernels.rms_norm import rms_norm

    return rms_norm(x, x.shape[1:], weight)


def _residual(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    from layernorm.kernels.layer_norm import add_layer_norm

    return add_layer_norm(x, residual, x.shape[1:], weight, bias)


KERNELS: dict[str, Function] = {"layer": _layer, "rms": _rms, "residual": _residual}


def candidates(
    operation: Operation, device: torch.device, compiled: bool = True
) -> tuple[Operation, dict[str, str]]:
    """The operation with every implementation that runs on the device, and why others do not.

    The names are definition, torch, compile (torch.compile of the definition, made anew for every
    case, so that no earlier shape makes it a program for all shapes), triton (this package's) and
    those of `PEERS`. Triton's interpreter on a CPU is no measurement.

    Args:
        compiled: with torch.compile.
    """
    found = dict(operation.implementations)
    refused = {}
    if compiled:
        definition = operation.implementations["definition"]
        found[COMPILED] = MadeAnew(lambda: _compiled(definition))
    others = {}
    if operation.name in KERNELS:
        others[OURS] = (find_spec("triton") is not None, KERNELS[operation.name])
    for peer in PEERS:
        if operation.name in peer.operations:
            others[peer.name] = (peer.installed(), peer.implementation(operation.name))
    for name, (installed, implementation) in others.items():
        if not installed:
            refused[name] = NOT_INSTALLED
        elif not _on_gpu(device):
            refused[name] = NEEDS_CUDA
        else:
            found[name] = implementation
    return replace(operation, implementations=found), refused


def _on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _compiled(definition: Function) -> Function:
    """One graph or an error, for this one shape; the compiler remembers no other."""
    torch._dynamo.reset()
    return torch.compile(definition, dynamic=False, fullgraph=True)


@contextmanager
def retained_graphs() -> Iterator[None]:
    """Within it, what is compiled leaves its saved tensors alone: a backward pass that is timed
    by itself runs many times after one forward pass."""
    from torch._functorch import config

    with config.patch(donated_buffer=False):
        yield
