"""Memory of one call, above what was allocated before it."""

import os
from itertools import accumulate

import torch

from layernorm.benchmarks.timing import Call


def peak(call: Call, device: torch.device) -> int:
    """Bytes that torch's allocator holds at most during the call, results included.

    On a GPU from the caching allocator's counters; on a CPU by adding up the allocations and
    releases that torch's profiler sees.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return max(accumulate(_changes(call)[1], initial=0))


def held(call: Call) -> int:
    """Bytes that torch's allocator on the CPU still holds after the call, while its result lives.

    Of a forward pass: the output and all that the graph keeps for the backward pass, whoever keeps
    it (`saved_tensors_hooks` would miss what an operator puts aside in tensors of its own).
    """
    result, changes = _changes(call)
    del result
    return sum(changes)


def _changes(call: Call) -> tuple[object, list[int]]:
    """The result of a call, and its allocations (positive) and releases in order."""
    from torch.autograd.profiler import profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or every start is a line on stderr
    with profile(profile_memory=True) as seen:
        result = call()
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    return result, [e.nbytes() for e in sorted(events, key=lambda event: event.start_ns())]
