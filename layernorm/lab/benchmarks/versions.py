"""The versions of a kernel that chapter 13 writes: each must agree with the definition and move the
bytes that were predicted, and on a GPU it is timed.

Bytes are counted in Triton's interpreter, which is written in NumPy: every load and store has its
addresses and a mask there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layernorm import functional
from layernorm.lab.benchmarks.measure import byte_model, gate, roof, timing
from layernorm.lab.benchmarks.measure.timing import Call

if TYPE_CHECKING:
    import pandas

Rows, Units = Float[Tensor, "m h"], Float[Tensor, " h"]
Forward = Callable[[Rows, Units, Units, float], Rows]  # of input, gain, bias and ε
Backward = Callable[[Rows, Rows, Units, float], Sequence[Tensor]]  # of dy, input, gain and ε
Case = tuple[int, int, torch.dtype]  # rows, units and type of an input

NOT_RUN, NOT_YET = "not run: Triton is not installed here", "not measured yet"
SHARE = "share of copy's speed"
LARGE_EPS = 0.1  # so that an ε in the wrong place is seen


class Agreement(NamedTuple):
    """The largest relative error, and the error that rounding may cause."""

    error: float
    allowed: float


def forward_error(
    forward: Forward, a: Rows, g: Units, b: Units, eps: float = LARGE_EPS
) -> Agreement:
    """Compare a forward pass with the definition in float64."""
    exact = functional.layer_norm(a.double(), g.shape, g.double(), b.double(), eps)
    with np.errstate(all="ignore"):  # the interpreter's, of a version that takes bad roots
        error = gate.relative_error(forward(a, g, b, eps), exact)
    return Agreement(error, gate.tolerance(a.dtype, a.shape[1]))


def backward_error(
    backward: Backward, a: Rows, g: Units, b: Units, eps: float = LARGE_EPS
) -> Agreement:
    """Compare a backward pass, which returns the gradients of the input alone or of the input, gain
    and bias, with autograd's of the definition in float64."""
    dy = torch.randn_like(a)
    leaves = [t.double().requires_grad_() for t in (a, g, b)]
    y = functional.layer_norm(leaves[0], g.shape, *leaves[1:], eps)
    exact = torch.autograd.grad(y, leaves, dy.double())
    pairs = zip(backward(dy, a, g, eps), exact, strict=False)
    error = max(gate.relative_error(*pair) for pair in pairs)
    return Agreement(error, gate.tolerance(a.dtype, max(a.shape)))


class Bytes(NamedTuple):
    """The bytes that kernels load and store: all of them, and those of distinct addresses of a
    launch, in each direction."""

    asked: int
    distinct: int


def count(call: Call) -> Bytes:
    """Count the bytes of the kernels that a call launches in Triton's interpreter."""
    launches = _addresses(call)
    groups = [(size, at) for launch in launches for (_, size), at in launch.items()]
    asked = sum(size * len(address) for size, at in groups for address in at)
    distinct = sum(size * len(np.unique(np.concatenate(at))) for size, at in groups)
    return Bytes(asked, distinct)


def _addresses(call: Call) -> list[dict[tuple[str, int], list[np.ndarray]]]:
    """The addresses that are not masked, by launch, direction and size of a number."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    launches: list[dict[tuple[str, int], list[np.ndarray]]] = []
    begin = Builder.set_grid_dim

    def set_grid_dim(self, *grid):  # a launch begins with it
        launches.append(defaultdict(list))
        return begin(self, *grid)

    def noting(name: str, mask: int):
        method = getattr(Builder, name)

        def noted(self, pointers, *rest):
            size = pointers.get_element_ty().primitive_bitwidth // 8
            launches[-1][name, size].append(pointers.data[rest[mask].data])
            return method(self, pointers, *rest)

        return noted

    patched = {
        "create_masked_load": noting("create_masked_load", 0),
        "create_masked_store": noting("create_masked_store", 1),  # values come before the mask
    }
    with mock.patch.multiple(Builder, set_grid_dim=set_grid_dim, **patched):
        call()
    return launches


class Clock:
    """Times calls by the rules of the benchmarks, beside a copy on the same device."""

    def __init__(self, device: torch.device):
        self.timer = timing.timer_for(device)
        self.roof = roof.copy_bandwidth(device, torch.float32, 2**29, self.timer)

    def rows(self, calls: Mapping[str, Call], least: int) -> dict[str, dict[str, float]]:
        """The milliseconds of each call, all taken in turns, and the least possible bytes divided
        by its time, as a share of the copy's speed."""
        samples = timing.interleaved(self.timer, calls, 11, 1e-3)
        seconds = {name: timing.spread(taken).median for name, taken in samples.items()}
        return {
            name: {"ms": round(1e3 * s, 3), SHARE: round(least / s / self.roof, 2)}
            for name, s in seconds.items()
        }


class Versions:
    """Versions of a kernel for layer normalization, and a row of a table for each.

    Args:
        draw: makes an input, a gain and a bias, given the case.
        cases: those in which a version must agree; in the last, which is of float32, its bytes are
            counted and its error is shown.
        large: rows and units that are timed on a GPU.
        device: the place of what `draw` makes. Bytes are counted on a CPU only.

    Attributes:
        moved: by name, the bytes asked for and the distinct ones, in units of the input's size.
        calls: by name, the forward passes.
    """

    def __init__(
        self,
        draw: Callable[..., Sequence[Tensor]],
        cases: Sequence[Case],
        large: tuple[int, int],
        device: torch.device,
    ):
        self.draw, self.cases, self.large = draw, cases, large
        self.clock = Clock(device) if device.type == "cuda" else None
        self.moved: dict[str, tuple[float, float]] = {}
        self.calls: dict[str, Forward] = {}

    def forward(
        self, name: str, forward: Forward, asked: int, distinct: int
    ) -> pandas.DataFrame | str:
        """Check, count and time a forward pass that should move so many numbers.

        Raises `ValueError` if it does not agree with the definition, or moves other bytes.
        """
        self.moved[name] = tuple(self._trips(asked, distinct).values())
        if find_spec("triton") is None:
            return NOT_RUN
        self.calls[name] = forward
        row = self._check(name, forward_error, forward)
        a, g, b = self.draw(*self.cases[-1])
        row |= self.counted(lambda: forward(a, g, b), asked, distinct)
        return _table(name, row | self.timed(forward))

    def backward(
        self, name: str, backward: Backward, asked: int, distinct: int
    ) -> pandas.DataFrame | str:
        """As `forward`, of a backward pass."""
        if find_spec("triton") is None:
            return NOT_RUN
        row = self._check(name, backward_error, backward)
        a, g, _ = self.draw(*self.cases[-1])
        row |= self.counted(lambda: backward(a, a.clone(), g), asked, distinct)
        return _table(name, row | self._timed_backward(backward))

    def counted(self, call: Call, asked: int, distinct: int) -> dict[str, float]:
        """Return the numbers that a call moves, in units of the input's size; where bytes can be
        counted, raise `ValueError` if they are others."""
        if self.clock is None and (found := count(call)) != (4 * asked, 4 * distinct):
            raise ValueError(
                f"a call should ask for {4 * asked} bytes, {4 * distinct} of them distinct; it "
                f"asks for {found.asked}, {found.distinct} of them distinct"
            )
        return self._trips(asked, distinct)

    def timed(self, forward: Forward) -> dict[str, float | str]:
        """The time of a forward pass of `large`."""
        if self.clock is None:
            return {SHARE: NOT_YET}
        return self._rows({"": forward})[""]

    def side_by_side(self, others: Mapping[str, Forward]) -> pandas.DataFrame:
        """All versions and some others, timed in turns."""
        import pandas

        if self.clock is None or not self.calls:
            return pandas.DataFrame({SHARE: dict.fromkeys(self.moved, NOT_YET)})
        rows = self._rows({**self.calls, **others})
        return pandas.DataFrame({SHARE: {name: row[SHARE] for name, row in rows.items()}})

    def _rows(self, forwards: Mapping[str, Forward]) -> dict[str, dict[str, float]]:
        a, g, b = self.draw(*self.large)
        calls = {name: lambda f=forward: f(a, g, b) for name, forward in forwards.items()}
        return self.clock.rows(calls, byte_model.traffic("forward", [a, g, b], [a], [], []))

    def _timed_backward(self, backward: Backward) -> dict[str, float | str]:
        if self.clock is None:
            return {SHARE: NOT_YET}
        a, g, b = self.draw(*self.large)
        dy = torch.randn_like(a)
        made = (a, g, b)[: len(backward(dy, a, g))]
        least = byte_model.traffic("backward", [], [dy], [a, g], made)
        return self.clock.rows({"": lambda: backward(dy, a, g)}, least)[""]

    def _check(self, name: str, compare: Callable[..., Agreement], version: Callable) -> dict:
        for case in self.cases:
            error, allowed = compare(version, *self.draw(*case))
            if not error < allowed:
                raise ValueError(f"{name} {case}: error {error:.2g}, allowed {allowed:.2g}")
        return {"error": f"{error:.1e}", "allowed": f"{allowed:.1e}"}

    def _trips(self, asked: int, distinct: int) -> dict[str, float]:
        rows, units, _ = self.cases[-1]
        return {"asked": asked / (rows * units), "distinct": distinct / (rows * units)}


def _table(name: str, row: dict) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame({name: row}).T
