"""`layernorm conform`: every formula of the family is found again, every fault is named."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from typed import layernorm

from layernorm import LayerNorm, RMSNorm
from layernorm.lab.conform import conform, find, identify
from layernorm.lab.conform.form import Unknown
from layernorm.lab.conform.published import PUBLISHED, names

UNITS, SHAPE = 8, (4, 5, 8)


class Norm(nn.Module):
    """A normalization with choices of its own, written without the module under test."""

    def __init__(self, axes=(-1,), centered=True, unbiased=False, place="inside", eps=1e-5,
                 offset=0.0, affine=True, size=UNITS):  # fmt: skip
        super().__init__()
        self.axes, self.centered, self.unbiased = axes, centered, unbiased
        self.place, self.eps, self.offset = place, eps, offset
        if affine:
            self.weight = nn.Parameter(torch.full((size,), 1.0 - offset))
            self.bias = nn.Parameter(torch.zeros(size))

    def statistics(self, x):
        mean = x.mean(self.axes, keepdim=True) if self.centered else torch.zeros_like(x)
        count = math.prod(x.shape[axis] for axis in self.axes)
        return mean, ((x - mean) ** 2).sum(self.axes, keepdim=True) / (count - self.unbiased)

    def divided(self, x):
        mean, v = self.statistics(x)
        if self.place == "inside":
            return (x - mean) / torch.sqrt(v + self.eps)
        if self.place == "outside":
            return (x - mean) / (torch.sqrt(v) + self.eps)
        return (x - mean) / torch.clamp(torch.sqrt(v), min=self.eps)

    def forward(self, x):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        y = self.divided(wide).to(x.dtype)
        return (self.weight + self.offset) * y + self.bias if hasattr(self, "weight") else y


CHOICES = list(product(
    [(-1,), (1, 2)], [True, False], [False, True],
    [("inside", 1e-5), ("inside", 1e-12), ("outside", 1e-3), ("floor", 1e-4), ("outside", 0.0)],
    [0.0, 1.0],
))  # fmt: skip


@pytest.mark.parametrize(("axes", "centered", "unbiased", "eps", "offset"), CHOICES)
def test_every_formula_is_found_again(axes, centered, unbiased, eps, offset):
    place, value = eps
    form = identify(Norm(axes, centered, unbiased, place, value, offset), SHAPE)
    assert form.axes == tuple(axis % 3 for axis in axes)
    assert (form.centered, form.correction) == (centered, int(unbiased))
    assert form.place == (place if value else "none")
    assert form.eps == pytest.approx(value, rel=1e-3)
    assert (form.gain, form.bias, form.offset) == ("weight", "bias", offset)


ROWS = [
    (nn.LayerNorm(UNITS), "Ba, Kiros and Hinton 2016, eq. 3"),
    (LayerNorm(UNITS), "Ba, Kiros and Hinton 2016, eq. 3"),
    (RMSNorm(UNITS), "Zhang and Sennrich 2019"),
    (nn.RMSNorm(UNITS), "Zhang and Sennrich 2019"),
    (Norm(eps=0.0), "without epsilon"),
    (Norm(unbiased=True, place="outside"), "Annotated Transformer"),
    (Norm(place="outside"), "burn"),
    (Norm(unbiased=True), "LBANN"),
    (Norm(offset=1.0), "LayerNorm1P"),
    (Norm(centered=False, place="outside"), "bzhangGo"),
    (Norm(centered=False, offset=1.0), "Gemma"),
    (nn.LayerNorm(SHAPE[1:]), "over several axes"),
    (nn.InstanceNorm1d(5, affine=True), "instance normalization"),
]
IMAGES = [
    (nn.GroupNorm(1, UNITS), "group normalization with one group"),
    (nn.InstanceNorm2d(UNITS), "instance normalization"),
    (nn.BatchNorm2d(UNITS), "batch normalization"),
    (Norm(axes=(1,), affine=False), "ConvNeXt"),
]


@pytest.mark.parametrize(
    ("made", "published", "shape"),
    [*((*row, SHAPE) for row in ROWS), *((*row, (4, UNITS, 5, 3)) for row in IMAGES)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_publications_are_named(made, published, shape):
    assert any(published in name for name in names(identify(made, shape)))


def test_two_changes_at_once_are_nobodys():
    """An unbiased variance beside a gain of 1 + g, which others have one of each."""
    for centered in (True, False):
        assert names(identify(Norm(centered=centered, unbiased=True, offset=1.0), SHAPE)) == []


class Along(nn.Module):
    """Layer normalization, then a gain and a bias along axis 1 or others."""

    def __init__(self, of_gain, of_bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(of_gain))
        self.bias = nn.Parameter(torch.zeros(of_bias))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


@pytest.mark.parametrize(
    ("module", "notes", "published"),
    [
        (Along((5, 1), (5, 1)), ["gain and bias along axis 1"], "instance normalization"),
        (nn.InstanceNorm1d(5, affine=True), ["gain and bias along axis 1"], "instance"),
        (Along(UNITS, (5, 1)), ["bias along axis 1"], ""),
        (
            Along((5, 1), SHAPE[1:]),
            ["gain along axis 1", "bias along axis 1 and the last axis"],
            "",
        ),
        (Along(UNITS, UNITS), [], "layer normalization"),
    ],
)
def test_gain_and_bias_of_layer_normalization_stand_along_its_axis(module, notes, published):
    """Of channels, those of axis 1, they make instance normalization of the same statistics."""
    form = identify(module, SHAPE)
    assert [line for line in form.notes() if " along " in line] == notes
    assert [name.startswith(published) for name in names(form)] == [True] * bool(published)


@pytest.mark.parametrize("axes", [(1,), (2, 3), (1, 2, 3)])
def test_over_channels_or_positions_epsilon_outside_of_the_root_is_nobodys(axes):
    for place, expected in (("inside", 1), ("outside", 0), ("floor", 0)):
        module = Norm(axes=axes, place=place, eps=1e-3, affine=False)
        assert (len(names(identify(module, (4, UNITS, 5, 3)))) > 0) == expected


@pytest.mark.parametrize("one", ["weight", "bias"])
def test_one_number_beside_one_for_each_unit_is_nobodys(one):
    module = Norm()
    setattr(module, one, nn.Parameter(torch.ones(1) if one == "weight" else torch.zeros(1)))
    report = conform(module, SHAPE)
    role = {"weight": "gain", "bias": "bias"}[one]
    assert names(report.form) == []
    assert f"one {role} for all units" in report.lines()
    assert f"fault: {role}: one number for all units" in report.lines()


def test_every_publication_has_a_case():
    for name, _ in PUBLISHED:
        assert any(published in name for _, published in (*ROWS, *IMAGES)), name


class OnePass(Norm):
    def statistics(self, x):
        mean = x.mean(-1, keepdim=True)
        return mean, x.square().mean(-1, keepdim=True) - mean.square()


class Half(Norm):
    def forward(self, x):
        return self.weight * self.divided(x) + self.bias


class OneGain(Norm):
    def __init__(self):
        super().__init__(size=1)


class Detached(Norm):
    def statistics(self, x):
        return super().statistics(x.detach())


class InPlace(Norm):
    def forward(self, x):
        return super().forward(x.sub_(x.mean(-1, keepdim=True)))


class Widened(Norm):
    def forward(self, x):
        return super().forward(x.float() if x.element_size() < 4 else x)


class Flat(Norm):
    """Reads the memory as if no view were strided."""

    def forward(self, x):
        return super().forward(torch.as_strided(x, x.shape, torch.empty(x.shape).stride()))


class Reversed(Norm):
    def forward(self, x):
        return self.weight.flip(0) * self.divided(x) + self.bias


class Silent(Norm):
    def forward(self, x):
        return super().forward(x).nan_to_num(0.0)


class OfTheBatch(nn.Module):
    """Statistics of the batch in training, and of the row in evaluation."""

    def forward(self, x):
        axes = (0, -1) if self.training else (-1,)
        mean, v = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
        return (x - mean) / torch.sqrt(v + 1e-5)


class Wrong(torch.autograd.Function):
    """The right value, and gradients times other numbers."""

    @staticmethod
    def forward(ctx, y, factor):
        ctx.factor = factor
        return y.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class WrongSlope(Norm):
    """One of three gradients is wrong; that of the input where the gain is not 1 alone."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, x):
        hat, gain, bias = self.divided(x), self.weight, self.bias
        if self.of == "the input":
            return Wrong.apply(hat, 1 / gain.detach()) * gain + bias
        if self.of == "weight":
            return hat * Wrong.apply(gain, 0.0) + bias
        return hat * gain + Wrong.apply(bias, 0.5)


class NeverLearns(Norm):
    def forward(self, x):
        return self.weight.data * self.divided(x) + self.bias


class OtherInTraining(Norm):
    def divided(self, x):
        self.eps = 1e-3 if self.training else 1e-5
        return super().divided(x)


@pytest.mark.parametrize("of", ["the input", "weight", "bias"])
def test_the_gradient_that_is_wrong_is_named(of):
    found = [str(fault) for fault in conform(WrongSlope(of), SHAPE).faults]
    assert [f for f in found if f.startswith(f"gradients: that of {of} is off by")]
    assert len([f for f in found if f.startswith("gradients")]) == 1


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        (NeverLearns(), "gradients"),
        (OtherInTraining(), "modes"),
        (OnePass(), "large means"),
        (Half(), "half precision"),
        (Norm(eps=0.0), "constant rows"),
        (OneGain(), "gain and bias"),
        (Reversed(), "gain and bias"),
        (Detached(), "gradients"),
        (InPlace(), "the input"),
        (Widened(), "the type"),
        (Flat(), "strides"),
        (Silent(), "overflow"),
        (OfTheBatch(), "other cases"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults_are_named(module, fault):
    assert fault in {found.name for found in conform(module, SHAPE).faults}


@pytest.mark.parametrize("units", [2, 7, 64, 1000])
def test_the_library_and_torch_have_no_fault(units):
    for module in (LayerNorm(units), nn.LayerNorm(units)):
        report = conform(module, (4, 3, units))
        seen = {fault.name for fault in report.faults}
        assert seen <= {"constant rows"}, report.lines()  # torch's, at some widths
    assert conform(LayerNorm(units), (4, 3, units)).conforms


class Unlike(Norm):
    """One unit counts twice in the statistics, or none does."""

    def __init__(self, more):
        super().__init__()
        self.more = more

    def statistics(self, x):
        counted = torch.cat([x, x[..., :1]], -1) if self.more else x
        # the median's square is no variance of the family, but every unit is treated alike
        _, v = super().statistics(counted)
        return counted.mean(-1, keepdim=True), v + (not self.more) * x.median(-1, True)[0] ** 2


def test_it_says_whether_units_are_treated_alike():
    unlike = "permuted along axis 2 do not give permuted outputs"
    with pytest.raises(Unknown, match=unlike):
        identify(Unlike(True), SHAPE)
    with pytest.raises(Unknown, match=r"give these outputs$"):
        identify(Unlike(False), SHAPE)
    with pytest.raises(Unknown, match="permuted along axis 1 do not"):
        identify(nn.GroupNorm(2, 6), (4, 6, 8))


def test_what_is_no_normalization_is_unknown():
    for module in (nn.Tanh(), nn.Identity(), nn.GroupNorm(2, UNITS)):
        assert conform(module, (4, UNITS, 5)).form is None
    with pytest.raises(Unknown, match="does not grow with a power"):
        identify(nn.Tanh(), SHAPE)


def test_a_parameter_without_effect_is_named():
    module = Norm()
    module.unused = nn.Parameter(torch.ones(3))
    assert conform(module, SHAPE).why == "unused does nothing"


def test_the_module_is_left_as_it_was():
    module = LayerNorm(UNITS).train()
    torch.nn.init.normal_(module.weight)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    conform(module, SHAPE)
    assert module.training
    for name, value in module.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(before[name], value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "expected package.module:Class"),
        (["torch.nn:Nothing"], "there is no torch.nn:Nothing"),
        (["no_such_package:Norm"], "there is no no_such_package:Norm"),
        (["torch.nn:Linear"], "see --set"),
        (["torch:float32"], "neither a torch.nn.Module nor a function"),
        (["torch.nn:LayerNorm", "--shape", "1,8"], "two cases"),
        (["torch.nn:LayerNorm", "--shape", "4,0,8"], "one of everything between, got (4, 0, 8)"),
        (["torch.nn:LayerNorm", "--units", "0"], "units must be at least 1, got 0"),
        (["torch.nn:LayerNorm", "--shape", "4,x"], "integers"),
        (["torch.nn:LayerNorm", "--shape", ""], "shape must be integers with commas"),
        (["torch.linalg:inv"], "fails on inputs of shape (4, 5, 8) in float64"),
        (["torch.nn:BatchNorm1d"], "if its channels are dimension 1 of the inputs, give --units 5"),
        (["layernorm:BatchNorm"], "if its channels are dimension 1 of the inputs, give --units 5"),
        (["torch.nn:GroupNorm", "--set", "num_groups=3"], "see --set"),
        (["torch.nn:AdaptiveAvgPool1d"], "expected an output of the input's shape"),
    ],
)
def test_bad_arguments_end_in_one_line(arguments, message):
    if arguments == ["torch.nn:AdaptiveAvgPool1d"]:
        arguments = [*arguments, "--units", "3"]
    result = layernorm("conform", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_command():
    good = layernorm("conform", "layernorm:LayerNorm", "--set", "eps=1e-6")
    assert good.exit_code == 0
    assert "sqrt(v + 1e-06)" in good.stdout
    bad = layernorm("conform", "torch.nn:BatchNorm1d", "--shape", "6,8", "--json")
    assert bad.exit_code == 1
    assert '"other cases"' in bad.stdout


def test_functions_and_instances_are_found():
    options = {"normalized_shape": [UNITS]}
    assert conform(find("layernorm.functional:layer_norm", options, UNITS)).conforms
