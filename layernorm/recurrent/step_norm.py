"""What `BatchNormLSTM` is made of: the norm of one term over the steps, and checks of input."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from layernorm import _validation
from layernorm.recurrent import checks

SIZES = ("input_size", "hidden_size", "num_layers", "max_length", "min_samples")
STATISTICS, BEYOND = ("per_step", "sequence"), ("last", "error")


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
            return F.batch_norm(a, mean, var, self.gain, self.bias, eps=self.eps)
        if len(a) >= self.min_samples:
            self.enough = a
            self.found.append(torch.var_mean(_wide(a.detach()), 0))
            return F.batch_norm(a, None, None, self.gain, self.bias, training=True, eps=self.eps)
        var, mean = torch.var_mean(_wide(self.enough), 0, correction=0)
        y = (_wide(a) - mean) / torch.sqrt(var + self.eps) * self.gain
        return (y if self.bias is None else y + self.bias).to(a.dtype)

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
    sizes = [n for n in (lengths > torch.arange(steps)[:, None]).sum(1).tolist() if n]
    return torch.cat([len(order) * t + order[:n] for t, n in enumerate(sizes)]), sizes, order


def reversal(sizes: list[int]) -> Int[Tensor, " rows"]:
    """Which row stands where when each sequence is read from its own end; its own inverse.

    `sizes` says how many cases, sorted by length, are going at each step.

    >>> reversal([2, 2, 1])  # lengths 3 and 2, in rows 0 2 4 and 1 3
    tensor([4, 3, 2, 1, 0])
    """
    starts = [0, *accumulate(sizes)]
    lengths = [sum(n > case for n in sizes) for case in range(sizes[0])]
    rows = [starts[lengths[k] - 1 - t] + k for t, n in enumerate(sizes) for k in range(n)]
    return torch.tensor(rows, dtype=torch.int64)


def check_settings(self, eps, momentum, **settings) -> None:
    """The constructor's arguments."""
    checks.sizes(**{name: settings[name] for name in SIZES})
    if settings["min_samples"] < 2:
        raise ValueError(f"min_samples must be at least 2, got {settings['min_samples']}")
    for name in ("gain", "forget_bias", "dropout"):
        _validation._finite(name, settings[name])
    if not 0 <= settings["dropout"] <= 1:
        raise ValueError(f"dropout must be a probability, in [0, 1], got {settings['dropout']}")
    _validation.settings(eps, momentum)
    if eps == 0:
        raise ValueError("eps must be positive, got 0: the first recurrent term has no variance")
    if momentum is not None and not 0 < momentum <= 1:
        raise ValueError(f"momentum must lie in (0, 1] or be None, got {momentum}")
    for name, known in (("statistics", STATISTICS), ("beyond", BEYOND)):
        if settings[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {settings[name]!r}")


def check_call(self, input, hx, lengths) -> None:
    """The arguments of a call, as far as they can be judged one by one."""
    checks.layer_input(input, self, self.weight_ih_l0)
    if hx is not None and not isinstance(hx, tuple | list):
        checks.initial_states(hx, 2, [], self.weight_ih_l0)  # refuses it
    if lengths is None:
        return
    if isinstance(input, PackedSequence) or input.dim() == 2:
        raise ValueError(
            "lengths must be None, got some: they are for padded batches, not for a PackedSequence "
            "or a single sequence"
        )
    lengths = torch.as_tensor(lengths)
    lengths = lengths if lengths.numel() else lengths.long()  # of an empty list
    batch, steps = input.shape[:2] if self.batch_first else input.shape[1::-1]
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(
            f"lengths must have shape ({batch},), one for each sequence, got {tuple(lengths.shape)}"
        )
    if torch.compiler.is_compiling() or not batch:
        return  # a graph has no values yet
    if not (lengths.min() >= 1 and lengths.max() <= steps):
        raise ValueError(
            f"lengths must lie in 1 to {steps}, the padded length, got {lengths.tolist()}; leave "
            "empty sequences out of the batch"
        )
