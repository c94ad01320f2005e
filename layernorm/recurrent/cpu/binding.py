"""Calls into the library of `native/`: its arguments, its threads, and memory used again."""

import ctypes
import functools
import threading
from collections import deque
from itertools import count as numbered

import torch
from torch import Tensor

from layernorm.recurrent import checks

SUFFIXES = {torch.float32: "float", torch.float64: "double"}  # of the library's functions
NO_MEMORY = 1  # what they return then, and another number where there are no threads
AGE = 4  # how many rounds of all its storages the pool keeps one that nobody asks for
LOOKED_AT = 16  # storages of a size, or for their age, in one search


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
    """Hand everything to the library, which trusts it: types and shapes are checked here. `room`
    has the addresses of what it writes, or has written before.

    Raises: TypeError for other numbers than float32 and float64; ValueError for shapes that do not
    fit; RuntimeError without the library, or where the system gives no more threads; MemoryError.
    """
    together = [(f"gain_{of}", f"bias_{of}") for of in "xhc"]
    together += [("gain_x", "gain_h")] if blocks == 3 else []  # the GRU has all norms or none
    for one, other in together:
        if (inputs.get(one) is None) != (inputs.get(other) is None):
            raise TypeError(f"{one} and {other} must both be tensors or both be None")
    if not numbers["eps"] >= 0:
        raise ValueError(f"eps must be non-negative, for instance 1e-5, got {numbers['eps']}")
    x, h0 = inputs["x"], inputs["h0"]
    if (kind := x.dtype) not in SUFFIXES:
        raise TypeError(
            f"{function} computes float32 or float64, got {kind}; give it tensors of one of these "
            "(a layer converts by itself, an exported one keeps the type that it was exported in)"
        )
    if x.dim() != 2 or h0.dim() != 2:
        raise ValueError(
            "x and h0 must have two dimensions, (rows, features), got shapes "
            f"{tuple(x.shape)} and {tuple(h0.shape)}"
        )
    (rows, width), (batch, units) = x.shape, h0.shape
    steps = len(checks.step_sizes(batch_sizes, rows, batch))
    batch_sizes = None if batch_sizes is None else batch_sizes.contiguous()
    state, output, per_gate = (batch, units), (rows, units), (blocks * units,)
    shapes = {
        "x": (rows, width), "h0": state, "c0": state, "dh_n": state, "dc_n": state, "y": output,
        "dy": output, "w_ih": (*per_gate, width), "w_hh": (*per_gate, units),
        "gain_c": (units,), "bias_c": (units,),
    }  # fmt: skip
    for name, tensor in inputs.items():
        if tensor is None:
            continue
        expected, on_cpu = shapes.get(name, per_gate), tensor.device.type == "cpu"
        fits = tensor.dtype == kind and tensor.shape == expected and tensor.is_contiguous()
        if not (fits and on_cpu):
            raise ValueError(
                f"{name} must be contiguous {kind} of shape {expected} on the CPU, got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
            )
        if tensor.is_neg():  # a view whose sign torch keeps beside the numbers
            tensor = inputs[name] = tensor.resolve_neg()
        room[name] = tensor.data_ptr()
    loaded = library()
    if not isinstance(loaded, ctypes.CDLL):
        raise RuntimeError(f"the fused path cannot be used here: {loaded}")
    given = {"steps": steps, "batch": batch, "inputs": width, "units": units} | numbers | room
    if batch_sizes is not None:
        given["batch_sizes"] = batch_sizes.data_ptr()
    # struct.error where a name is given that the library does not have
    arguments = loaded.layout.pack(*(loaded.absent | given).values())
    problem = getattr(loaded, f"{function}_{SUFFIXES[kind]}")(arguments)
    if problem == NO_MEMORY:
        raise MemoryError(f"{function}: no memory for the working space of {units} units")
    if problem:
        raise RuntimeError(
            f"{function}: the system does not give {numbers['threads']} threads; ask for fewer "
            "with torch.set_num_threads"
        )


class Pool:
    """Memory for what forward passes keep, used again when the graph that held it is gone.

    A training step asks for the same sizes over and over, and fresh memory costs a page fault for
    every 4 kB, which on small nets takes longer than the arithmetic. What is idle and has not been
    asked for in a while is given back to the system. A search looks at a few storages in turn, so
    that its time does not depend on how many are held.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names = numbered()
        self.clear()

    def clear(self) -> None:
        """Hold nothing any more."""
        with self.lock:
            self.takes = 0
            self.storages: dict[int, torch.UntypedStorage] = {}  # by name
            self.taken: dict[int, int] = {}  # the last take of each
            self.sizes: dict[int, deque[int]] = {}  # names by the number of bits of their size
            self.ages: deque[int] = deque()  # names

    def take(self, like: Tensor, count: int) -> Tensor:
        need = count * like.element_size()
        with self.lock:
            self.takes += 1
            name = self._idle(need)
            if name is None:
                name, storage = next(self.names), like.new_empty(count).untyped_storage()
                if isinstance(loaded := library(), ctypes.CDLL):
                    loaded.use_huge_pages(storage.data_ptr(), need)
                self.storages[name] = storage
                self.sizes.setdefault(storage.nbytes().bit_length(), deque()).append(name)
                self.ages.append(name)
            self.taken[name] = self.takes
            self._forget()
            return like.new_empty(0).set_(self.storages[name], 0, (count,))

    def _idle(self, need: int) -> int | None:
        """A storage of this size, at most twice as large, that no graph holds."""
        for bits in (need.bit_length(), need.bit_length() + 1):
            names = self.sizes.get(bits, ())
            for _ in range(min(LOOKED_AT, len(names))):
                name = names.popleft()
                if (storage := self.storages.get(name)) is None:
                    continue
                names.append(name)
                if need <= storage.nbytes() <= 2 * need and _unused(storage):
                    return name
        return None

    def _forget(self) -> None:
        """Give back sizes of the past."""
        oldest = self.takes - AGE * max(16, len(self.storages))
        for _ in range(min(LOOKED_AT, len(self.ages))):
            name = self.ages.popleft()
            if self.taken[name] < oldest and _unused(self.storages[name]):
                del self.storages[name], self.taken[name]
            else:
                self.ages.append(name)


def _unused(storage: torch.UntypedStorage) -> bool:
    return torch._C._storage_Use_Count(storage._cdata) == 1


pool = Pool()
