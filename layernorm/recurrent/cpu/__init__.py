"""The layer-normalized LSTM and GRU over whole sequences, fast on CPUs.

The same functions as in `layernorm.recurrent.definition`, computed by the C++ of `native/`. Where
W_h fits into each core's own cache, the threads divide the sequences; otherwise they divide the
hidden units. One pass over a step's rows does both norms, the gates, the cell and its norm. Each is
registered with torch as an operator (`layernorm::lstm`,
`layernorm::lstm_backward`, ...), so that `torch.compile` and `torch.export` take it as it is.

float32 and float64 are computed in themselves, float16 and bfloat16 in float32.
"""

import ctypes

import torch
from torch import Tensor

from layernorm.recurrent import fused
from layernorm.recurrent.cpu import binding
from layernorm.recurrent.definition import GRUWeights, LSTMWeights
from layernorm.recurrent.fused import constant_in_graphs
from layernorm.recurrent.variants import named_variant


def unsupported(
    kind: str, device_type: str, dtype: torch.dtype, projection: bool = False
) -> str | None:
    """Return why the fused path computes this on no machine, or None if there is no such reason."""
    if device_type != "cpu":
        return f"it runs on CPUs, and the tensors are on {device_type}"
    return fused.unsupported(kind, dtype, projection)


@constant_in_graphs
def missing() -> str | None:
    """Return why the library is missing, or None if it is there; compile it if needed."""
    library = binding.library()
    if not isinstance(library, ctypes.CDLL):
        return str(library)
    from layernorm.recurrent.cpu import operators  # noqa: F401  registers them, before any capture

    return None


def faster(kind: str, x: Tensor, units: int) -> bool:
    """Return True: on CPUs it was always faster than the definition."""
    return True


def lstm(
    x: Tensor,
    batch_sizes: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    weights: LSTMWeights,
    eps: float = 1e-5,
    variant: str = "paper",
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`definition.lstm` without projections: same arguments, same results.

    Raises: ValueError where shapes, batch sizes, eps, the variant or its norms do not fit, and for
    a projection; TypeError for what is no tensor.
    """
    named = named_variant(variant).form.named
    for name in ("ln_ih", "ln_hh"):
        if (getattr(weights, name) is None) == (name in named):
            expected = "a pair (gain, bias)" if name in named else "None"
            raise ValueError(f'weights.{name} must be {expected} for variant "{variant}"')
    if weights.w_hr is not None:
        raise ValueError("weights.w_hr must be None: the fused path has no projections")
    kind, tensors = _computed_in(
        {"x": x, "h0": h0, "c0": c0, "w_ih": weights.w_ih, "w_hh": weights.w_hh}, weights.b,
        *(weights.ln_ih or (None, None)), *(weights.ln_hh or (None, None)), *weights.ln_c,
    )  # fmt: skip
    from layernorm.recurrent.cpu import operators

    keep = fused.recorded(tensors)
    y, h_n, c_n, _ = operators.lstm(*tensors, batch_sizes, eps, variant, reverse, keep)
    return y.to(kind), h_n.to(kind), c_n.to(kind)


def gru(
    x: Tensor,
    batch_sizes: Tensor | None,
    h0: Tensor,
    weights: GRUWeights,
    eps: float = 1e-5,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """`definition.gru`: same arguments, same results.

    Raises: as `lstm`.
    """
    kind, tensors = _computed_in(
        {"x": x, "h0": h0, "w_ih": weights.w_ih, "w_hh": weights.w_hh}, weights.b,
        *weights.ln_ih, *weights.ln_hh,
    )  # fmt: skip
    from layernorm.recurrent.cpu import operators

    keep = fused.recorded(tensors)
    y, h_n, _ = operators.gru(*tensors, batch_sizes, eps, reverse, keep)
    return y.to(kind), h_n.to(kind)


def _computed_in(
    named: dict[str, Tensor], *rest: Tensor | None
) -> tuple[torch.dtype, list[Tensor | None]]:
    """The type of the results, the states', and the tensors in that to compute in.

    Args:
        named: x, the states and matrices, which are always there.

    Raises: TypeError for what is no tensor, and for a state or weight of another type, except
    under autocast.
    """
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    x, *others = (*named.values(), *rest)
    kind = others[0].dtype
    compute = torch.float64 if kind == torch.float64 else torch.float32
    fused.one_type(kind, others)
    return kind, [t if t is None or _fits(t, compute) else t.to(compute).contiguous()
                  for t in (x, *others)]  # fmt: skip


def _fits(tensor: Tensor, kind: torch.dtype) -> bool:
    return tensor.dtype == kind and tensor.is_contiguous()
