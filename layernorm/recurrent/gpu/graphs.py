"""The whole computation of a recurrent layer in a CUDA graph, for calls that come again.

A step's product and kernel take the GPU a few microseconds each, less than the CPU needs to launch
them. The second call of the same shapes and settings is captured, forward and backward, and from
then on replayed: inputs are copied to where the graph reads them, results to fresh tensors. What
the gradient needs stays in the graph's own memory, which is not used again before that gradient's
graph is gone: as many calls as are waiting for their gradients have captures of their own, up to
`LIMIT` of all kinds. They keep their memory; `clear()` gives it back. `LIMIT = 0` captures nothing.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor

from layernorm.recurrent.gpu.compute import Inputs, Settings, compute, compute_gradient

LIMIT = 8
SEEN = 64  # keys of single calls that are remembered

Replay = Callable[[], None]


class Capture:
    """One layer's computation in graphs that share their memory."""

    def __init__(self, key: tuple, inputs: Inputs, settings: Settings) -> None:
        self.key, self.settings = key, settings
        self.inputs = Inputs(*(_buffer(t) for t in inputs))
        self.outputs, self.replay, self.pool = capture(lambda: compute(self.inputs, settings))
        self.kept = self.outputs[3:]
        self.backward: dict[bool, tuple[list[Tensor], list[Tensor], Replay] | None] = {}
        self.references = self._references()
        self.call = 0  # the number of the last one

    def idle(self) -> bool:
        """Tell whether nobody waits for the gradient of what was kept."""
        return self._references() == self.references

    def forward(self, inputs: Inputs) -> tuple[list[Tensor], list[Tensor]]:
        """y, h_n, c_n; and aliases of what is kept for the gradient."""
        _fill(self.inputs, inputs)
        self.replay()
        return [t.clone() for t in self.outputs[:3]], [t.detach() for t in self.kept]

    def holds(self, kept: list[Tensor]) -> bool:
        """Tell whether these are the tensors of `forward`; hooks may have put others there."""
        return len(kept) == len(self.kept) and all(
            a.data_ptr() == b.data_ptr() and a.device == b.device
            for a, b in zip(kept, self.kept, strict=True)
        )

    def gradient(
        self, dy: Tensor, dh_n: Tensor | None, dc_n: Tensor | None, needs_dx: bool
    ) -> list[Tensor] | None:
        """None where there is no memory for a capture."""
        given = [dy, dh_n, dc_n]
        if needs_dx not in self.backward:

            def run() -> list[Tensor]:
                return compute_gradient(*incoming, self.kept, self.inputs, self.settings, needs_dx)

            try:
                incoming = [torch.zeros_like(t) for t in (dy, *self.outputs[1:3])]
                results, replay, _ = capture(run, self.pool)
                self.backward[needs_dx] = incoming, results, replay
            except torch.OutOfMemoryError:
                self.backward[needs_dx] = None
        if (captured := self.backward[needs_dx]) is None:
            return None
        incoming, results, replay = captured
        _fill(incoming, given)
        replay()
        return [t.clone() for t in results]

    def _references(self) -> list[int]:
        """The users of each tensor; hooks may have put others in the places of some."""
        return [torch._C._storage_Use_Count(t.untyped_storage()._cdata) for t in self.kept]


_lock = threading.Lock()
_captures: OrderedDict[int, Capture] = OrderedDict()  # the one used last comes last
_seen: OrderedDict[tuple, int | None] = OrderedDict()  # the last call; None: not to be captured
_calls = count(1)


def forward(
    inputs: Inputs, settings: Settings
) -> tuple[Capture, list[Tensor], list[Tensor]] | None:
    """The capture, and what its `forward` gives; None where this call must be computed."""
    if not _possible(inputs.x):
        return None
    of_inputs = tuple(None if t is None else (t.shape, t.dtype) for t in inputs)
    key = (_stream(inputs.x), torch.is_inference_mode_enabled(), settings, of_inputs)
    with _lock:
        call = next(_calls)
        found = next((c for c in _captures.values() if c.key == key and c.idle()), None)
        if found is None:
            before = _seen_before(key, call)
            if before is None or not _room(call, 2 * (call - before)):
                return None
            try:
                found = Capture(key, inputs, settings)
            except torch.OutOfMemoryError:  # a capture has copies of its own
                _seen[key] = None
                return None
            _captures[id(found)] = found
        _captures.move_to_end(id(found))
        found.call = call
        return found, *found.forward(inputs)


def clear() -> None:
    """Forget all captures; their memory is free when no gradient waits for it."""
    with _lock:
        _captures.clear()
        _seen.clear()


def capture(function: Callable[[], list[Tensor]], pool=None) -> tuple[list[Tensor], Replay, object]:
    """The function's results, which every replay overwrites; the replay; the graph's memory."""
    function()  # once outside: kernels are compiled, libraries have set up what they need
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        results = function()
    return results, graph.replay, graph.pool()


def _possible(x: Tensor) -> bool:
    """Another capture takes the launches as they are."""
    return (
        LIMIT > 0 and x.is_cuda and x.shape[0] > 0 and not torch.cuda.is_current_stream_capturing()
    )


def _stream(x: Tensor) -> tuple:
    """Buffers belong to one stream, whose order keeps a replay from the one before."""
    return x.device, torch.cuda.current_stream(x.device).cuda_stream


def _seen_before(key: tuple, call: int) -> int | None:
    """The last call of this key; None if there was none, or it is not to be captured."""
    before = _seen.get(key)
    if key not in _seen or before is not None:
        _seen[key] = call
    _seen.move_to_end(key)
    if len(_seen) > SEEN:
        _seen.popitem(last=False)
    return before


def _room(call: int, longest: int) -> bool:
    """Make room for one more by the idle capture used longest ago; False if none is idle, or it was
    used in the last `longest` calls: shapes that take turns would drive each other out."""
    while len(_captures) >= LIMIT:
        idle = next((number for number, c in _captures.items() if c.idle()), None)
        if idle is None or call - _captures[idle].call <= longest:
            return False
        del _captures[idle]
    return True


def _buffer(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.detach().clone(memory_format=torch.contiguous_format)


def _fill(buffers, tensors) -> None:
    for buffer, t in zip(buffers, tensors, strict=True):
        if buffer is not None:
            buffer.zero_() if t is None else buffer.copy_(t)
