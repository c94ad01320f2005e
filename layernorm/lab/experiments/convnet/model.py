r"""The networks: a plain one and a residual one; only their statistics differ by arm.

Every convolution has no bias. What it gives, the summed inputs a (n, C, H, W), is standardized by
the method's mean and variance and then gets a gain and a bias *per channel*, the same in every arm
(also in `none`, which standardizes nothing):

$$ y = g_c\,(a - \mu)/\sqrt{\sigma^2 + \epsilon} + b_c . $$
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layernorm import modules

METHODS = ("none", "batch", "layer", "group", "instance")


class Affine(nn.Module):
    """Gain (1 at first) and bias (0) per channel, and no statistics: the arm `none`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, a: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return torch.addcmul(self.bias[:, None, None], a, self.weight[:, None, None])


class ChannelNorm(modules.LayerNorm):
    """Layer normalization over the channels alone: every position of a case by itself."""

    def forward(self, input: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


class InteriorNorm(Affine):
    """Layer normalization whose statistics leave the border out, though all units use them.

    Mean and variance of a case are those of its units at least a seventh of the image (rounded
    down) away from the border: 4 of 28 positions, 2 of 14, 1 of 7.
    """

    eps = 1e-5

    def forward(self, a: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        var, mu = torch.var_mean(interior(a), (1, 2, 3), correction=0, keepdim=True)
        scale = self.weight[:, None, None] * torch.rsqrt(var + self.eps)
        return torch.addcmul(self.bias[:, None, None] - mu * scale, a, scale)


def interior(a: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c inner_h inner_w"]:
    """The positions that `InteriorNorm` takes its statistics over."""
    y, x = (size // 7 for size in a.shape[2:])
    return a[:, :, y : a.shape[2] - y, x : a.shape[3] - x]


def norm(method: str, over: str, channels: int, groups: int) -> nn.Module:
    """The module that standardizes summed inputs, with its gain and bias per channel.

    `batch` takes statistics over (N, H, W), `instance` over (H, W), `group` over a group of
    channels and (H, W), `layer` over (C, H, W), or over C alone (`over="channels"`), or over
    (C, H, W) without the border (`over="interior"`).
    """
    if method == "layer" and over != "all":
        return {"channels": ChannelNorm, "interior": InteriorNorm}[over](channels)
    return {
        "none": lambda: Affine(channels),
        "batch": lambda: modules.BatchNorm(channels),
        "layer": lambda: modules.GroupNorm(1, channels),
        "group": lambda: modules.GroupNorm(groups, channels),
        "instance": lambda: modules.InstanceNorm(channels, affine=True),
    }[method]()


class Unit(nn.Module):
    """A convolution, its normalization and ReLU. `relu=False` leaves the last out."""

    def __init__(self, options, ins: int, outs: int, stride=1, size=3, relu=True) -> None:
        super().__init__()
        padding = {"padding": size // 2, "padding_mode": options.padding}
        self.conv = nn.Conv2d(ins, outs, size, stride, bias=False, **padding)
        self.norm = norm(options.method, options.over, outs, options.groups)
        self.relu = relu

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:
        y = self.norm(self.conv(x))
        return torch.relu(y) if self.relu else y


class Block(nn.Module):
    """Two convolutions and a way around them (He et al. 2016): relu(F(x) + x).

    Where F changes the shape, the way around is a convolution of size 1, normalized too.
    """

    def __init__(self, options, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.first = Unit(options, ins, outs, stride)
        self.second = Unit(options, outs, outs, relu=False)
        same = ins == outs and stride == 1
        self.around = nn.Identity() if same else Unit(options, ins, outs, stride, 1, relu=False)

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:
        return torch.relu(self.second(self.first(x)) + self.around(x))


class Classifier(nn.Module):
    """The mean over all positions, then ten logits, which are never normalized."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 10)

    def forward(self, h: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 10"]:
        return self.linear(h.mean((2, 3)))


def plain(options, inputs: int) -> nn.Sequential:
    """One convolution after another; every second one halves the image."""
    sizes = [inputs, *options.channels]
    strides = [1 + i % 2 for i in range(len(options.channels))]
    units = [Unit(options, sizes[i], sizes[i + 1], stride) for i, stride in enumerate(strides)]
    return nn.Sequential(*units, Classifier(sizes[-1]))


def resnet(options, inputs: int) -> nn.Sequential:
    """A convolution, then stages of blocks; every stage but the first halves the image."""
    layers: list[nn.Module] = [Unit(options, inputs, options.stages[0])]
    ins = options.stages[0]
    for stage, outs in enumerate(options.stages):
        for block in range(options.blocks):
            layers.append(Block(options, ins, outs, 2 if stage and not block else 1))
            ins = outs
    return nn.Sequential(*layers, Classifier(ins))


def build(options, inputs: int) -> nn.Sequential:
    """The network of the options for images with that many input channels.

    Weights start as torch's `nn.Conv2d` starts them; a seed gives every arm the same ones.
    """
    return {"plain": plain, "resnet": resnet}[options.network](options, inputs)


def activated(model: nn.Module) -> Iterator[Unit]:
    """The convolutions whose normalized summed inputs a ReLU gets as they are, first one first."""
    return (unit for unit in model.modules() if isinstance(unit, Unit) and unit.relu)


@torch.no_grad()
def rescale_(model: nn.Sequential, x: Float[Tensor, "n c h w"]) -> None:
    """Scale each weight tensor so that its summed inputs over x start with unit variance.

    The control arm `rescaled`: one factor a layer, in the order in which they act; biases stay 0.
    Raises `ValueError` if a layer's summed inputs do not vary over x.
    """

    def scale(layer: nn.Module, _, out: Tensor) -> Tensor:
        spread = out.std()
        if not spread > 0:
            raise ValueError("the summed inputs do not vary over x; give more varied cases")
        layer.weight.div_(spread)
        return out / spread

    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    model[-1].linear.bias.zero_()
    hooks = [layer.register_forward_hook(scale) for layer in layers]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
