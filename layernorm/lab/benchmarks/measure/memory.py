"""Memory: the peak of one call, bytes kept for a backward pass, growth of a process."""

import ctypes
import gc
import os
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from layernorm.lab.benchmarks.measure.timing import Call


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


def held(forward: Callable[[], Tensor], others: Iterable[Tensor] = ()) -> int:
    """Bytes kept for the backward pass: the result and all that its graph saves, whole storages,
    each counted once.

    An allocator's count would miss a storage that an implementation keeps from call to call and
    uses again.

    Args:
        others: tensors that live anyway and are not counted, such as inputs and parameters.
    """
    alive = {tensor.untyped_storage().data_ptr() for tensor in others}
    sizes: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in alive:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # itself would be a cycle: result, graph, result

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        count(forward())
    return sum(sizes.values())


def growth(call: Call, times: int = 3) -> int | None:
    """Return by how many bytes this process grows at most during some calls; None where the system
    does not tell (other than Linux).

    Memory outside of torch's tensors counts as well, also if it is needed only for a moment.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status("VmRSS")
    except (OSError, AttributeError):
        return None
    for _ in range(times):
        call()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    """Bytes of an entry in the system's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
