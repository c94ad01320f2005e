"""What `BatchNormLSTM` is made of: the norm of one term over the steps, and checks of input."""

import math
from numbers import Integral, Real

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

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


def check_settings(eps, dropout, momentum, **settings) -> None:
    """The constructor's arguments."""
    settings |= {"eps": eps, "dropout": dropout, "momentum": momentum}
    least = {"input_size": 1, "hidden_size": 1, "num_layers": 1, "max_length": 1, "min_samples": 2}
    for name, low in least.items():
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be an int, got {value!r}")
        if value < low:
            raise ValueError(f"{name} must be at least {low}, got {value}")
    for name in ("gain", "eps", "dropout", "forget_bias", "momentum"):
        value = settings[name]
        if name == "momentum" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
    if eps <= 0:
        raise ValueError(
            f"eps must be positive, got {eps}: the first recurrent term W_h 0 has no variance"
        )
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability, in [0, 1], got {dropout}")
    if momentum is not None and not 0 < momentum <= 1:
        raise ValueError(f"momentum must lie in (0, 1] or be None, got {momentum}")
    for name, known in (("statistics", STATISTICS), ("beyond", BEYOND)):
        if settings[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {settings[name]!r}")


def check_call(self, input, hx, lengths) -> None:
    """The arguments of a call, as far as they do not depend on each other."""
    packed = isinstance(input, PackedSequence)
    single = not packed and isinstance(input, Tensor) and input.dim() == 2
    shape = (None, self.input_size) if packed or single else (None, None, self.input_size)
    name, x = ("input.data", input.data) if packed else ("input", input)
    check_tensor(name, x, shape, self.weight_ih_l0)
    if packed and lengths is not None:
        raise ValueError("lengths must be None where input is a PackedSequence, got both")
    if hx is not None and (not isinstance(hx, tuple | list) or len(hx) != 2):
        raise TypeError(f"hx must be a pair (h_0, c_0) of tensors, got {type(hx).__name__}")
    if lengths is not None:
        lengths = torch.as_tensor(lengths)
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}")


def check_tensor(name: str, t, shape: tuple[int | None, ...], like: Tensor) -> None:
    """A tensor of this shape (None: any size) and of the type of `like`."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(t).__name__}")
    if t.dim() != len(shape) or any(
        n is not None and n != m for n, m in zip(shape, t.shape, strict=True)
    ):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(t.shape)}")
    if t.dtype != like.dtype and not torch.is_autocast_enabled(t.device.type):
        raise TypeError(
            f"{name} must have the type of the layer, {like.dtype}, got {t.dtype}; convert one of "
            "them with .to(...)"
        )


def checked_lengths(lengths, steps: int, batch: int) -> Tensor:
    """One length for each sequence of a padded batch, on the CPU."""
    lengths = torch.as_tensor(lengths).cpu()
    if lengths.shape != (batch,):
        raise ValueError(
            f"lengths must have shape ({batch},), one for each sequence, got {tuple(lengths.shape)}"
        )
    if batch and not (lengths.min() >= 1 and lengths.max() <= steps):
        raise ValueError(
            f"lengths must lie in 1 to {steps}, the padded length, got {lengths.tolist()}; leave "
            "empty sequences out of the batch"
        )
    return lengths
