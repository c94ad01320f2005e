"""Calls into the library of `native/`: its arguments, its threads, and memory used again."""

import ctypes
import functools
import threading

import torch
from torch import Tensor

from layernorm.recurrent import checks


@functools.cache
def library() -> ctypes.CDLL | Exception:
    """The library, or the `build.BuildError` that says why there is none."""
    from layernorm.recurrent.cpu import build  # here: it is also a program, `python -m`

    try:
        loaded = build.load()
    except build.BuildError as reason:
        return reason
    try:  # the threads that torch itself uses
        symbols = ctypes.CDLL(None)
        gomp = (symbols.GOMP_parallel, symbols.omp_get_num_threads)
        loaded.use_gomp(*(ctypes.cast(symbol, ctypes.c_void_p) for symbol in gomp))
    except (OSError, AttributeError):
        pass  # a torch without libgomp: threads of our own
    return loaded


def call(
    function: str,
    blocks: int,
    batch_sizes: Tensor | None,
    numbers: dict,
    inputs: dict[str, Tensor | None],
    room: dict[str, int],
) -> None:
    """Hand everything to the library, which trusts it: the inputs' sizes are checked here. `room`
    has the addresses of what it writes, or has written before."""
    x, h0 = inputs["x"], inputs["h0"]
    (rows, width), (batch, units) = x.shape, h0.shape
    steps = len(checks.step_sizes(batch_sizes, rows, batch))
    batch_sizes = None if batch_sizes is None else batch_sizes.contiguous()
    sizes = {
        "x": rows * width, "h0": batch * units, "c0": batch * units, "y": rows * units,
        "dy": rows * units, "dh_n": batch * units, "dc_n": batch * units,
        "w_ih": blocks * units * width, "w_hh": blocks * units * units,
        "gain_c": units, "bias_c": units,
    }  # fmt: skip
    kind, others = x.dtype, blocks * units
    for name, tensor in inputs.items():
        if tensor is None:
            continue
        expected = sizes.get(name, others)
        if tensor.dtype != kind or tensor.numel() != expected or not tensor.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous {kind} with {expected} elements, got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            )
        room[name] = tensor.data_ptr()
    loaded = library()
    if not isinstance(loaded, ctypes.CDLL):
        raise RuntimeError(f"the fused path cannot be used here: {loaded}")
    given = {"steps": steps, "batch": batch, "inputs": width, "units": units} | numbers | room
    if batch_sizes is not None:
        given["batch_sizes"] = batch_sizes.data_ptr()
    # struct.error where a name is given that the library does not have
    arguments = loaded.layout.pack(*(loaded.absent | given).values())
    suffix = "double" if kind == torch.float64 else "float"
    if getattr(loaded, f"{function}_{suffix}")(arguments):
        raise MemoryError(f"{function}: no memory for the working space of {units} units")


class Pool:
    """Memory for what forward passes keep, used again when the graph that held it is gone.

    A training step asks for the same sizes over and over, and fresh memory costs a page fault for
    every 4 kB, which on small nets takes longer than the arithmetic.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.storages: list[torch.UntypedStorage] = []

    def take(self, like: Tensor, count: int) -> Tensor:
        need = count * like.element_size()
        with self.lock:
            idle = [s for s in self.storages if torch._C._storage_Use_Count(s._cdata) == 1]
            fitting = [s for s in idle if need <= s.nbytes() <= 2 * need]
            if fitting:
                storage = fitting[0]
            else:
                for s in idle[4:]:  # sizes of the past
                    self.storages.remove(s)
                storage = like.new_empty(count).untyped_storage()
                if isinstance(loaded := library(), ctypes.CDLL):
                    loaded.use_huge_pages(storage.data_ptr(), need)
                self.storages.append(storage)
            return like.new_empty(0).set_(storage, 0, (count,))


pool = Pool()
