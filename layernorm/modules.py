"""Normalization layers that take the place of `torch.nn`'s.

Each class but `WeightNormLinear` (and those of `layernorm.dynamic`) extends torch's: constructor
arguments, attributes, printed form and state-dict keys are torch's, checkpoints load both ways, and
`isinstance` tests for torch's class hold (of batch and instance normalization: for the base of its
1d, 2d and 3d classes). New are `backend` ("auto", "reference", "torch" or "triton"; see
`layernorm.kernels`), checked arguments, any number of spatial dimensions, and batch normalization's
mask.

With "auto" a CPU computes by torch's own operators, whose results they are to the bit: where
squares exceed the type's range some give zeros, and they lose digits where a mean is large beside
what varies. Use `backend="reference"` or `functional` there: they give the true value or NaN, and
center twice.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from layernorm import _validation_modules, functional, kernels
from layernorm._validation import checked
from layernorm.dynamic import DynamicErf, DynamicTanh

__all__ = [  # noqa: RUF022 - as defined, the order of the API page
    "LayerNorm",
    "RMSNorm",
    "GroupNorm",
    "InstanceNorm",
    "BatchNorm",
    "DynamicTanh",
    "DynamicErf",
    "WeightNormLinear",
]


class LayerNorm(nn.LayerNorm):
    """`functional.layer_norm` with its gain (1 at first) and bias (0); eq. (3) of the paper.

    Takes the place of `torch.nn.LayerNorm`; keys: weight, bias.

    >>> LayerNorm(2, eps=0.0)(torch.tensor([[1.0, 3.0]]))
    tensor([[-1.,  1.]], grad_fn=<NativeLayerNormBackward0>)
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.settings)
    def __init__(
        self,
        normalized_shape: int | list[int] | tuple[int, ...] | torch.Size,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        backend: str = "auto",
    ) -> None:
        kernels.check_backend(backend)
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.backend = backend

    def forward(self, input: Tensor) -> Tensor:
        args = (self.normalized_shape, self.weight, self.bias, self.eps)
        return kernels.run("layer_norm", self.backend, input, *args)


class RMSNorm(nn.RMSNorm):
    """`functional.rms_norm` with its gain (1 at first).

    Takes the place of `torch.nn.RMSNorm`; key: weight.

    >>> RMSNorm(2, eps=0.0, elementwise_affine=False)(torch.tensor([[1.0, 7.0]]))
    tensor([[0.2000, 1.4000]])
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.rms_settings)
    def __init__(
        self,
        normalized_shape: int | list[int] | tuple[int, ...] | torch.Size,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device=None,
        dtype=None,
        *,
        backend: str = "auto",
    ) -> None:
        kernels.check_backend(backend)
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.backend = backend

    def forward(self, x: Tensor) -> Tensor:
        args = (self.normalized_shape, self.weight, self.eps)
        return kernels.run("rms_norm", self.backend, x, *args)


class GroupNorm(nn.GroupNorm):
    """`functional.group_norm` with a gain (1 at first) and a bias (0) per channel.

    Takes the place of `torch.nn.GroupNorm`; keys: weight, bias.

    >>> GroupNorm(2, 4, eps=0.0, affine=False)(torch.tensor([[1.0, 3.0, 10.0, 30.0]]))
    tensor([[-1.,  1., -1.,  1.]])
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.settings)
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device=None,
        dtype=None,
        *,
        bias: bool = True,
        backend: str = "auto",
    ) -> None:
        kernels.check_backend(backend)
        super().__init__(num_groups, num_channels, eps, affine, device, dtype, **_bias(bias))
        self.backend = backend

    def forward(self, input: Tensor) -> Tensor:
        _validation_modules.features(input, self.num_channels)
        args = (self.num_groups, self.weight, self.bias, self.eps)
        return kernels.run("group_norm", self.backend, input, *args)


class InstanceNorm(_InstanceNorm):
    """`functional.instance_norm` for inputs (N, C, *spatial), any number of spatial dimensions.

    Takes the place of `torch.nn.InstanceNorm1d`, `2d` and `3d`; keys: weight and bias with
    `affine`, running_mean, running_var and num_batches_tracked with `track_running_stats`. The
    input always has its batch dimension: without it the spatial dimensions cannot be told apart.

    >>> InstanceNorm(2, eps=0.0)(torch.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
    tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.settings)
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device=None,
        dtype=None,
        *,
        bias: bool = True,
        backend: str = "auto",
    ) -> None:
        kernels.check_backend(backend)
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, **_bias(bias)
        )
        self.backend = backend

    def forward(self, input: Tensor) -> Tensor:
        _validation_modules.features(input, self.num_features)
        own = self.training or not self.track_running_stats
        args = (self.running_mean, self.running_var, self.weight, self.bias, own)
        momentum = 0.0 if self.momentum is None else self.momentum  # as in torch
        return kernels.run("instance_norm", self.backend, input, *args, momentum, self.eps)


class BatchNorm(_BatchNorm):
    """`functional.batch_norm` for inputs (N, C, *spatial), with an optional mask of padding.

    Takes the place of `torch.nn.BatchNorm1d`, `2d` and `3d`; keys: weight, bias, running_mean,
    running_var, num_batches_tracked. `momentum=None` means the plain average of all batches.

    >>> norm = BatchNorm(1, eps=0.0, affine=False)
    >>> norm(torch.tensor([[1.0], [3.0], [99.0]]), mask=torch.tensor([True, True, False]))
    tensor([[-1.],
            [ 1.],
            [ 0.]])
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.settings)
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device=None,
        dtype=None,
        *,
        bias: bool = True,
        backend: str = "auto",
    ) -> None:
        kernels.check_backend(backend)
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, **_bias(bias)
        )
        self.backend = backend

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        _validation_modules.features(input, self.num_features)
        tracking = self.training and self.track_running_stats
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / (float(self.num_batches_tracked) + 1) if tracking else 0.0
        stats = (self.running_mean, self.running_var)
        if self.training and not tracking:
            stats = (None, None)
        args = (*stats, self.weight, self.bias, self.training or stats[0] is None)
        y = kernels.run("batch_norm", self.backend, input, *args, momentum, self.eps, mask=mask)
        if tracking:
            self.num_batches_tracked.add_(1)
        return y


class WeightNormLinear(nn.Module):
    """A linear layer whose weight is `functional.weight_norm(v, g)`: each row has its own length.

    Takes the place of a `torch.nn.Linear` with `torch.nn.utils.parametrizations.weight_norm`. Keys:
    weight_g (out, 1), weight_v (out, in), bias (out,); torch's parametrized layer loads these, and
    its own (parametrizations.weight.original0 and original1) load here. At first the weight is
    initialized as by `torch.nn.Linear`: v is that weight, g its rows' lengths.

    Source: Salimans and Kingma 2016, arXiv:1602.07868, eq. (2).

    >>> layer = WeightNormLinear(3, 2)
    >>> torch.allclose(layer.weight.norm(dim=1, keepdim=True), layer.weight_g)
    True
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None
    ) -> None:
        super().__init__()
        _validation_modules.sizes(in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        options = {"device": device, "dtype": dtype}
        self.weight_g = nn.Parameter(torch.empty(out_features, 1, **options))
        self.weight_v = nn.Parameter(torch.empty(out_features, in_features, **options))
        self.bias = nn.Parameter(torch.empty(out_features, **options)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize as `torch.nn.Linear` does."""
        options = {"device": self.weight_v.device, "dtype": self.weight_v.dtype}
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, **options)
        self.weight_v.copy_(linear.weight)
        self.weight_g.copy_(torch.linalg.vector_norm(linear.weight, dim=1, keepdim=True))
        if self.bias is not None:
            self.bias.copy_(linear.bias)

    @property
    def weight(self) -> Tensor:
        """w = g v / |v|, (out, in)."""
        return functional.weight_norm(self.weight_v, self.weight_g)

    def forward(self, input: Tensor) -> Tensor:
        _validation_modules.linear(input, self.weight_v)
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        for i, name in enumerate(("weight_g", "weight_v")):
            key = f"{prefix}parametrizations.weight.original{i}"
            if key in state_dict:
                state_dict[prefix + name] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _bias(bias: bool) -> dict[str, bool]:
    """`bias` only where it says something: versions of torch that lack the argument have a bias."""
    return {} if bias else {"bias": False}
