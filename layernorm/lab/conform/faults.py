"""The faults that a normalization of known formula can have.

The formula in float64 is the truth that outputs in float32 and float16 are held against. What they
may be off by follows from the rounding that no implementation avoids, times a factor for the order
of the operations (`SLACK`); what computes otherwise, the variance as mean(x^2) - mu^2 or a sum of
squares in half precision, is off by orders of magnitude more.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from layernorm.lab.conform.form import Form, draw, output, spread_out

SLACK = 16  # roundings; a mean of n terms has sqrt(n), a division, a root and a product a few more


@dataclass(frozen=True)
class Fault:
    """Something that an implementation gets wrong, and what was seen."""

    name: str
    seen: str

    def __str__(self) -> str:
        return f"{self.name}: {self.seen}"


def faults(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """All that are found, in copies of the module: each check has its own, since one that raises
    may leave it in another type or mode."""
    module = _plain(copy.deepcopy(module).double().requires_grad_().train(form.training), form)
    for check in CHECKS:
        try:
            yield from check(copy.deepcopy(module), form, shape)
        except Exception as error:  # of any kind, from inside the module
            seen = (str(error) or type(error).__name__).splitlines()[0]
            yield Fault(check.__doc__.split(".")[0], f"it raised {seen}")


def _off(y: Tensor, truth: Tensor) -> float:
    """The largest difference; infinite where y is not a number."""
    difference = (y.double() - truth).abs()
    return float(difference.nan_to_num(nan=torch.inf).max())


def _plain(module: nn.Module, form: Form) -> nn.Module:
    """The module with a gain of 1 and a bias of 0."""
    for name, value in ((form.gain, 1.0 - form.offset), (form.bias, 0.0)):
        if name:
            dict(module.named_parameters())[name].data.fill_(value)
    return module


def _resolution(module: nn.Module, form: Form, shape: tuple[int, ...]) -> float:
    """The largest difference of equal outputs: larger for a module that computes in float32 inside,
    whose normalized values float32 holds as they are."""
    y = output(_plain(copy.deepcopy(module), form), draw(shape))
    if not torch.equal(y, y.float().double()):
        return 1e-9
    return SLACK * torch.finfo(torch.float32).eps * float(y.abs().max())


def _cases(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Other cases. A case's output must not depend on them, in training and in evaluation."""
    x = draw(shape)
    other = torch.cat([x[:1], draw(shape, 10.0, 5.0, seed=3)[1:]])
    for training in (True, False):
        module.train(training)
        off = _off(output(module, x)[0], output(module, other)[0])
        if off > _resolution(module, form, shape):
            when = "training" if training else "evaluation"
            yield Fault("other cases", f"in {when} they change the output by {off:.2g}")


def _input(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """The input. It must stay as it is, and the type of the output be its own."""
    x = draw(shape)
    kept = x.clone()
    output(module, x)
    if not torch.equal(x, kept):
        yield Fault("the input", "it is changed in place")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        got = output(module.to(dtype), kept.to(dtype)).dtype
        if got != dtype:
            yield Fault("the type", f"{dtype} comes back as {got}")


def _strides(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Strides. A transposed view must give what its copy gives."""
    x = draw(shape)
    view = x.transpose(0, -1).contiguous().transpose(0, -1)
    off = _off(output(module, view), output(module, x))
    if off > _resolution(module, form, shape):
        yield Fault("strides", f"a transposed view is off by {off:.2g}")


def _affine(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Gain and bias. Each unit has its own, y = g x_hat + b."""
    if form.shared:
        yield Fault(" and ".join(form.shared), "one number for all units")
    (module, own), x = _with_numbers(module, form), draw(shape)
    off = _off(output(module, x), _by_formula(form, own, x).detach())
    if off > 1e-4:
        yield Fault("gain and bias", f"with numbers for each unit off by {off:.2g}")


def _with_numbers(module: nn.Module, form: Form) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """A copy with other numbers for every unit, and its gain and bias by name."""
    module = copy.deepcopy(module)
    own = {name: dict(module.named_parameters())[name] for name in (form.gain, form.bias) if name}
    for seed, parameter in enumerate(own.values(), 8):
        parameter.data.copy_(draw((2, *parameter.shape), seed=seed)[0])
    return module, own


def _by_formula(form: Form, own: dict[str, nn.Parameter], x: Tensor) -> Tensor:
    """g x_hat + b."""
    y = form.normalized(x)
    if form.gain:
        y = y * (spread_out(own[form.gain], x) + form.offset)
    return y + spread_out(own[form.bias], x) if form.bias else y


def _modes(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Modes. What it computes in evaluation it computes in training."""
    (module, _), x = _with_numbers(module, form), draw(shape, 0.01)  # where epsilon is seen
    off = _off(output(module.train(), x), output(module.eval(), x))
    if off > _resolution(module, form, shape) and not form.training:
        yield Fault("modes", f"outputs in training and in evaluation differ by {off:.2g}")


def _gradient(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Gradients. Those of the module, of its gain and bias as well, against its formula's."""
    module, own = _with_numbers(module, form)
    weights, found = draw(shape, seed=4), []
    for function in (module, lambda x: _by_formula(form, own, x)):
        x = draw(shape).requires_grad_()
        y = function(x)
        if not y.requires_grad:
            yield Fault("gradients", "there are none")
            return
        leaves = [x, *own.values()]
        found.append(torch.autograd.grad((y * weights).sum(), leaves, allow_unused=True))
    for name, got, true in zip(("the input", *own), *found, strict=True):
        if got is None:
            yield Fault("gradients", f"{name} has none")
        elif (off := _off(got, true) / float(true.abs().max())) > 1e-3:
            yield Fault("gradients", f"that of {name} is off by {off:.2g} of the largest")


def _constant(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Constant rows. Without spread the centered input is 0, and so is the output."""
    if not form.centered:
        x = torch.zeros(shape)
        if not output(module.float(), x).isfinite().all():
            yield Fault("rows of zeros", "not a number")
        return
    y = output(module.float(), torch.full(shape, 12345.678))
    if not y.isfinite().all():
        yield Fault("constant rows", "not a number")
    elif (worst := float(y.abs().max())) > 1e-3:
        yield Fault("constant rows", f"12345.678 in every unit gives {worst:.2g} instead of 0")


def _mean(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Large means. A spread of 1 around 10,000, in float32."""
    if not form.centered or form.power != 0.5:
        return
    x = (1e4 + draw(shape, seed=5)).float()
    truth = form.normalized(x.double())
    off = _off(output(module.float(), x), truth)
    smallest = float(x.double().std(form.axes).min())
    allowed = SLACK * torch.finfo(torch.float32).eps * 1e4 / smallest
    if off > allowed * float(truth.abs().max()):
        yield Fault("large means", f"around 10,000 float32 is off by {off:.2g}")


def _half(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Half precision. Spreads of 1000 and of nothing, in float16."""
    if form.power != 0.5:
        return
    half = module.half()
    x = draw(shape, 1000.0, seed=6).clamp(-6e4, 6e4).half()
    truth = form.normalized(x.double())
    off = _off(output(half, x), truth)
    if off > SLACK * torch.finfo(torch.float16).eps * float(truth.abs().max()):
        seen = "not a number" if off == torch.inf else f"off by {off:.2g}"
        yield Fault("half precision", f"at a spread of 1000, {seen}")
    if form.place != "none" and not output(half, torch.zeros(shape).half()).isfinite().all():
        yield Fault("half precision", f"rows of zeros are not a number: {form.eps:.2g} becomes 0")


def _overflow(module: nn.Module, form: Form, shape: tuple[int, ...]) -> Iterator[Fault]:
    """Overflow. Where the squares exceed float32, the truth or no number, never zeros."""
    if form.power != 0.5:
        return
    x = draw(shape, 1e20, seed=7).float()
    y = output(module.float(), x)
    truth = form.normalized(x.double())
    if y.isfinite().all() and _off(y, truth) > 0.1:
        yield Fault("overflow", f"inputs near 1e20 give {float(y.abs().max()):.2g}, silently")


CHECKS = (
    _cases, _modes, _input, _strides, _affine, _gradient, _constant, _mean, _half, _overflow,
)  # fmt: skip
