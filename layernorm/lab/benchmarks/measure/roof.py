"""The roof: the speed at which this machine copies memory."""

import torch

from layernorm.lab.benchmarks.measure.timing import Timer, calibrate, timer_for

ROUNDS = 9


def copy_bandwidth(
    device: torch.device, dtype: torch.dtype, traffic: int, timer: Timer | None = None
) -> float:
    """Bytes per second, read plus written, of `torch.Tensor.copy_`: the best of nine samples.

    On a CPU the copy moves `traffic` bytes, as many as what it is compared with, because caches
    are warm there and a small copy is faster than memory. On a GPU it moves at least 16 times the
    L2 cache, from memory to memory.
    """
    timer = timer or timer_for(device)
    if device.type == "cuda":
        traffic = max(traffic, 16 * torch.cuda.get_device_properties(device).L2_cache_size)
    source = torch.ones(max(1, traffic // (2 * dtype.itemsize)), dtype=dtype, device=device)
    target = torch.zeros_like(source)

    def copy() -> None:
        target.copy_(source)

    repeats = calibrate(timer, copy, 1e-3)
    fastest = min(timer.seconds(copy, repeats) for _ in range(ROUNDS))
    return 2 * source.numel() * dtype.itemsize / fastest
