"""`layernorm conform` on modules that are right, but made otherwise than the ones it knows: no
fault is invented, and what cannot be judged is one line."""

import pytest
import torch
from torch import nn

from layernorm.lab.conform import conform, find


class InFloat32(nn.Module):
    """RMS normalization as in Llama: in float32 inside, whatever comes."""

    def __init__(self, units):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(units))

    def forward(self, x):
        wide = x.float()
        y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class FromItsCopy(InFloat32):
    """Wrong by more than float32's rounding where the input is a view."""

    def forward(self, x):
        return super().forward(x) * (1.0 if x.is_contiguous() else 1.001)


class NotCopied(nn.LayerNorm):
    def __init__(self, units):
        super().__init__(units)
        self.cache = self.weight * 1


class NoBfloat16(nn.LayerNorm):
    """A layer for a device without bfloat16."""

    def forward(self, x):
        if x.dtype == torch.bfloat16:
            raise TypeError("no bfloat16 here")
        return super().forward(x)


class Named(nn.LayerNorm):
    def __init__(self, *, size=None):
        assert size, "a size"
        super().__init__(size)


def seen(module, shape=(4, 5, 64)) -> set[str]:
    return {fault.name for fault in conform(module, shape).faults}


def test_float32_inside_is_no_fault():
    """Equal outputs are equal to its rounding, not to float64's."""
    assert seen(InFloat32(64)) == {"overflow"}
    assert seen(FromItsCopy(64)) == {"overflow", "strides"}


def test_a_frozen_parameter_is_no_fault():
    module = nn.LayerNorm(8)
    module.bias.requires_grad_(False)
    assert conform(module).conforms
    assert not module.bias.requires_grad


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 8), nn.LayerNorm(8)])
def test_two_axes_of_one_size_cannot_be_told_apart(norm):
    assert "size both; give a shape of different sizes" in conform(norm, (4, 8, 8)).why


def test_what_cannot_be_made_or_copied_is_one_line():
    with pytest.raises(ValueError, match=r"it cannot be copied: RuntimeError"):
        conform(NotCopied(8))
    with pytest.raises(ValueError, match=r"Named\(8, \.\.\.\) failed: .*; see --set"):
        find(f"{__name__}:Named", {}, 8)


def test_a_check_that_raises_spoils_no_other_check():
    found = [str(fault) for fault in conform(NoBfloat16(64), (4, 5, 64)).faults]
    assert found == ["The input: it raised no bfloat16 here"]
