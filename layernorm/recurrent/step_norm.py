"""What `BatchNormLSTM` is made of: the norm of one term over the steps, and checks of input."""

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


def reversal(batch_sizes: Int[Tensor, " steps"]) -> Int[Tensor, " rows"]:
    """Which row of packed sequences stands where when each sequence is read from its own end.

    Sequences are in the order of `PackedSequence.data`; the index is its own inverse.

    >>> reversal(torch.tensor([2, 2, 1]))  # lengths 3 and 2; rows 0 2 4 and 1 3
    tensor([4, 3, 2, 1, 0])
    """
    steps = torch.arange(len(batch_sizes)).repeat_interleave(batch_sizes)
    starts = batch_sizes.cumsum(0) - batch_sizes
    case = torch.arange(len(steps)) - starts[steps]
    lengths = torch.bincount(case, minlength=1)
    return starts[lengths[case] - 1 - steps] + case


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
    batch, steps = input.shape[:2] if self.batch_first else input.shape[1::-1]
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(
            f"lengths must have shape ({batch},), one for each sequence, got {tuple(lengths.shape)}"
        )
    if batch and not (lengths.min() >= 1 and lengths.max() <= steps):
        raise ValueError(
            f"lengths must lie in 1 to {steps}, the padded length, got {lengths.tolist()}; leave "
            "empty sequences out of the batch"
        )
