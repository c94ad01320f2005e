"""The norm of one term of `BatchNormLSTM` over the steps, and the order of its rows."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


class StepNorm:
    """Batch normalization of one term of one layer, during one pass over a batch of sequences.

    Without `running` the cases of a step are normalized by their own mean and variance; where they
    are fewer than `min_samples`, by those of the last step that had enough. `running`, a mean and a
    variance for each step, takes the place of both.
    """

    def __init__(
        self,
        gain: Float[Tensor, " units"],
        bias: Float[Tensor, " units"] | None,
        eps: float,
        min_samples: int,
        running: tuple[Float[Tensor, "steps units"], Float[Tensor, "steps units"]] | None = None,
    ) -> None:
        self.gain, self.bias, self.eps, self.min_samples = gain, bias, eps, min_samples
        self.running = running
        self.enough: Tensor | None = None  # the cases of the last step that had enough
        self.found: list[tuple[Tensor, Tensor]] = []

    def __call__(self, a: Float[Tensor, "cases units"], step: int) -> Float[Tensor, "cases units"]:
        if self.running is not None:
            mean, var = (moment[step] for moment in self.running)
            return F.batch_norm(a, mean, var, self._gain(var), self.bias, eps=self.eps)
        if len(a) >= self.min_samples:
            self.enough = a
            self.found.append(torch.var_mean(_wide(a.detach()), 0))
            gain = self._gain(self.found[-1][0])
            return F.batch_norm(a, None, None, gain, self.bias, training=True, eps=self.eps)
        var, mean = torch.var_mean(_wide(self.enough), 0, correction=0)
        y = (_wide(a) - mean) / torch.sqrt(var + self.eps) * self._gain(var)
        return (y if self.bias is None else y + self.bias).to(a.dtype)

    def _gain(self, var: Float[Tensor, " units"]) -> Float[Tensor, " units"]:
        """NaN where a variance overflowed; torch divides by infinity and gives zeros."""
        return self.gain + (var.detach() - var.detach()).to(self.gain.dtype)

    def seen(self) -> tuple[Float[Tensor, "steps units"], Float[Tensor, "steps units"]]:
        """Mean and unbiased variance of the steps that had enough cases."""
        var, mean = (torch.stack(moment) for moment in zip(*self.found, strict=True))
        return mean, var


def _wide(a: Tensor) -> Tensor:
    """Statistics are never taken in half precision."""
    return a.float() if a.dtype in (torch.float16, torch.bfloat16) else a


def valid_rows(lengths: Int[Tensor, " cases"], steps: int) -> tuple[Tensor, list[int], Tensor]:
    """The rows of a padded batch (steps * cases) that are no padding, as a `PackedSequence` orders
    them: step by step, the longest case first.

    Returns their index, how many there are at each step, and the order of the cases.

    >>> index, sizes, order = valid_rows(torch.tensor([1, 3, 2]), 4)
    >>> index.tolist(), sizes, order.tolist()
    ([1, 2, 0, 4, 5, 7], [3, 2, 1], [1, 2, 0])
    """
    order = lengths.argsort(descending=True, stable=True)
    sizes = [n for n in (lengths > torch.arange(steps, device="cpu")[:, None]).sum(1).tolist() if n]
    return torch.cat([len(order) * t + order[:n] for t, n in enumerate(sizes)]), sizes, order


def reversal(sizes: list[int]) -> Int[Tensor, " rows"]:
    """The row that stands at each place when each sequence is read from its end; its own inverse.

    `sizes` says how many cases, sorted by length, are going at each step.

    >>> reversal([2, 2, 1])  # lengths 3 and 2, in rows 0 2 4 and 1 3
    tensor([4, 3, 2, 1, 0])
    """
    starts = [0, *accumulate(sizes)]
    lengths = [sum(n > case for n in sizes) for case in range(sizes[0])]
    rows = [starts[lengths[k] - 1 - t] + k for t, n in enumerate(sizes) for k in range(n)]
    return torch.tensor(rows, dtype=torch.int64, device="cpu")
