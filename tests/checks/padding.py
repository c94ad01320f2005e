"""Checks of batch normalization with a mask: padding counts nowhere."""

import torch
import torch.nn.functional as F
from library.oracle import assert_close, assert_rounded, draw
from torch.autograd import gradcheck, gradgradcheck

from checks.registry import check
from layernorm import functional

# Lengths of the sequences in a padded batch; the mask is their union of valid positions.
LENGTHS = torch.tensor([5, 1, 0, 3])
MASKS = [
    torch.tensor([True, False, True, True]),
    torch.arange(5) < LENGTHS[:, None],
    (torch.arange(5) < LENGTHS[:, None])[:, :, None].expand(4, 5, 2),
]


def _inputs(mask, seed=0):
    x = draw(4, 3, *mask.shape[1:], seed=seed, mean=2.0, std=3.0)
    return x, draw(3, seed=1), draw(3, seed=2)


def _running():
    return draw(3, seed=3), draw(3, seed=4).exp()


@check("batch_norm")
def masked_equals_unmasked_on_the_valid_positions(f, _):
    """Outputs, running statistics and gradients, in training and in evaluation."""
    for mask in MASKS:
        for training in (True, False):
            x, w, b = (t.requires_grad_() for t in _inputs(mask))
            alone, w2, b2 = (t.detach().clone().requires_grad_() for t in (x, w, b))
            packed = alone.movedim(1, -1)[mask]
            mine, plain = _running(), _running()
            y = f(x, *mine, w, b, training, 0.3, 1e-3, mask=mask)
            expected = f(packed, *plain, w2, b2, training, 0.3, 1e-3)
            assert_close(y.movedim(1, -1)[mask], expected, 1e-12)
            for got, unmasked in zip(mine, plain, strict=True):
                assert_close(got, unmasked, 1e-12)
            upstream = draw(*expected.shape, seed=5)
            y.movedim(1, -1)[mask].backward(upstream)
            expected.backward(upstream)
            for got, unmasked in ((x, alone), (w, w2), (b, b2)):
                assert_close(got.grad, unmasked.grad, 1e-11)  # sums of terms that cancel


@check("batch_norm")
def a_mask_of_all_true_changes_nothing(f, _):
    for mask in MASKS:
        x, w, b = _inputs(mask)
        mine, plain = _running(), _running()
        got = f(x, *mine, w, b, True, mask=torch.ones_like(mask))
        assert_close(got, f(x, *plain, w, b, True), 1e-12)
        for masked, unmasked in zip(mine, plain, strict=True):
            assert_close(masked, unmasked, 1e-12)


@check("batch_norm")
def padding_of_any_content_reaches_nothing(f, _):
    """NaN, infinity or huge numbers in the padding, and NaN in its upstream gradient: outputs,
    running statistics and gradients stay the same to the last bit; output and gradient are 0."""
    for mask in MASKS:
        for training in (True, False):
            results = []
            for padding in (0.0, float("nan"), float("inf"), -1e300):
                x, w, b = _inputs(mask)
                x = torch.where(mask.unsqueeze(1), x, padding)
                x, w, b = (t.requires_grad_() for t in (x, w, b))
                running = _running()
                y = f(x, *running, w, b, training, mask=mask)
                upstream = torch.where(mask.unsqueeze(1), draw(*x.shape, seed=5), padding)
                y.backward(upstream)
                results.append([y.detach(), *running, x.grad, w.grad, b.grad])
                padded = (~mask).unsqueeze(1).expand_as(x)
                assert not y[padded].any()
                assert not x.grad[padded].any()
            for result in results[1:]:
                for got, expected in zip(result, results[0], strict=True):
                    assert torch.equal(got, expected)


@check("batch_norm")
def masked_first_and_second_derivatives(f, _):
    mask = MASKS[1]
    inputs = [t.requires_grad_() for t in _inputs(mask)]

    def call(x, w, b):
        return f(x, None, None, w, b, True, eps=1e-2, mask=mask)

    assert gradcheck(call, inputs)
    assert gradgradcheck(call, inputs)


@check("batch_norm")
def masked_half_precision(f, _):
    """Statistics in float32; the 2301 valid positions are a number that float16 does not have."""
    mask = torch.ones(2, 1301, dtype=torch.bool)
    mask[1, 1000:] = False
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = draw(2, 3, 1301, mean=10.0).to(dtype)
        got = f(x, None, None, training=True, mask=mask).movedim(1, -1)[mask]
        packed = x.double().movedim(1, -1)[mask]
        assert got.dtype == dtype
        expected = F.batch_norm(packed, None, None, training=True)
        assert_rounded(
            [got],
            lambda packed=packed: [functional.batch_norm(packed, None, None, training=True)],
            torch.float32,
            expected=[expected],
        )
