"""Peak memory of one call, above what was allocated before it."""

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
    from torch.autograd.profiler import profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or every start is a line on stderr
    with profile(profile_memory=True) as seen:
        call()
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(changes, initial=0))
