# ruff: noqa: E501  (a table, one line per case)
"""Masked batch normalization beyond torch's, and how bad input is met."""

import pytest
import torch
from library.oracle import assert_close, draw

import layernorm
from layernorm import functional, kernels


def _ragged(n=4, t=6):
    mask = torch.arange(t) < torch.tensor([6, 2, 4, 1])[:n, None]
    return draw(n, 3, t, mean=2.0, std=3.0), mask


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("momentum", [0.3, None])
def test_mask_in_training_and_evaluation(backend, momentum):
    """Padding of any content changes nothing; the state is that of the packed positions."""
    ours = layernorm.BatchNorm(3, momentum=momentum, dtype=torch.float64, backend=backend)
    plain = torch.nn.BatchNorm1d(3, momentum=momentum, dtype=torch.float64)
    for step in range(3):
        x, mask = _ragged()
        x = torch.where(mask[:, None], x + step, float("nan"))
        packed = x.movedim(1, -1)[mask]
        y = ours(x, mask=mask)
        assert_close(y.movedim(1, -1)[mask], plain(packed), 1e-12)
        assert not y.movedim(1, -1)[~mask].any()
    for got, expected in zip(ours.buffers(), plain.buffers(), strict=True):
        assert_close(got, expected, 1e-12)
    y = ours.eval()(x, mask)
    assert_close(y.movedim(1, -1)[mask], plain.eval()(packed), 1e-12)


def test_a_refused_batch_leaves_the_state():
    norm = layernorm.BatchNorm(3)
    before = {k: v.clone() for k, v in norm.state_dict().items()}
    for bad in (torch.zeros(1, 3), torch.zeros(4, 2), torch.zeros(4, 3).int()):
        with pytest.raises((ValueError, TypeError)):
            norm(bad)
    assert all(torch.equal(v, before[k]) for k, v in norm.state_dict().items())


def test_statistics_are_left_alone_once_tracking_is_switched_off():
    for module in (layernorm.BatchNorm(3), torch.nn.BatchNorm1d(3)):
        module.track_running_stats = False
        module(torch.randn(4, 3))
        assert not module.running_mean.any()
        assert module.num_batches_tracked == 0


BAD = [
    (lambda: layernorm.LayerNorm(3, eps=-1.0), ValueError, "eps must be non-negative.*got -1.0"),
    (lambda: layernorm.RMSNorm(3, eps=float("nan")), ValueError, "eps must be finite, got nan"),
    (lambda: layernorm.BatchNorm(3, eps=float("inf")), ValueError, "eps must be finite, got inf"),
    (lambda: layernorm.BatchNorm(3, momentum="slow"), TypeError, "momentum must be a number"),
    (lambda: layernorm.InstanceNorm(3, eps=None), TypeError, "eps must be a number, got None"),
    (lambda: layernorm.GroupNorm(3, 4), ValueError, "num_groups must be positive and divide.*4; got 3"),
    (lambda: layernorm.GroupNorm(0, 4), ValueError, "num_groups must be positive"),
    (lambda: layernorm.LayerNorm(3, backend="cuda"), ValueError, "one of auto, reference, torch, triton, got 'cuda'"),
    (lambda: layernorm.LayerNorm(3)(torch.zeros(2, 4)), ValueError, r"got \(3,\) for x of shape \(2, 4\)"),
    (lambda: layernorm.LayerNorm(3)(torch.zeros(2, 3).int()), TypeError, "x must be float16"),
    (lambda: layernorm.LayerNorm(3)(torch.zeros(2, 3).double()), TypeError, "weight must have the input's type"),
    (lambda: layernorm.GroupNorm(2, 4)(torch.zeros(2, 6)), ValueError, r"4 channels.*\(2, 6\)"),
    (lambda: layernorm.BatchNorm(3)(torch.zeros(2, 5, 3)), ValueError, r"3 channels.*\(2, 5, 3\).*movedim"),
    (lambda: layernorm.BatchNorm(3)(torch.zeros(1, 3)), ValueError, "more than one value per channel in training"),
    (lambda: layernorm.BatchNorm(3)(torch.zeros(3)), ValueError, r"input must have shape \(N, C, \*spatial\)"),
    (lambda: layernorm.BatchNorm(3)(torch.zeros(2, 3), torch.zeros(2, dtype=torch.bool)), ValueError, "valid positions"),
    (lambda: layernorm.BatchNorm(3, backend="torch")(torch.zeros(2, 3), torch.ones(2, dtype=torch.bool)), ValueError, "no masked batch normalization"),
    (lambda: layernorm.InstanceNorm(3)(torch.zeros(2, 4, 5)), ValueError, "3 channels"),
    (lambda: layernorm.InstanceNorm(3)(torch.zeros(2, 3, 1)), ValueError, "more than one position"),
    (lambda: layernorm.WeightNormLinear(3, 2)(torch.zeros(4, 2)), ValueError, r"shape \(\*batch, 3\), got \(4, 2\)"),
    (lambda: layernorm.WeightNormLinear(3, 2)(torch.zeros(4, 3).double()), TypeError, "the weights' type torch.float32, got torch.float64"),
    (lambda: layernorm.WeightNormLinear(3, 2)(torch.zeros(4, 3).long()), TypeError, "input must be float16"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_chosen_backend_computes(monkeypatch):
    """ "reference" is the definition, "auto" and "torch" PyTorch's own; a mask leaves the choice
    to "auto"."""
    called = []
    for name, f in list(kernels._TORCH.items()):
        monkeypatch.setitem(kernels._TORCH, name, lambda *a, f=f: called.append("torch") or f(*a))
        definition = getattr(functional, name)
        monkeypatch.setattr(
            functional, name, lambda *a, f=definition, **k: called.append("reference") or f(*a, **k)
        )
    x, mask = torch.randn(3, 4, 5), torch.ones(3, 5, dtype=torch.bool)
    makers = [
        lambda b: layernorm.LayerNorm(5, backend=b),
        lambda b: layernorm.RMSNorm(5, backend=b),
        lambda b: layernorm.GroupNorm(2, 4, backend=b),
        lambda b: layernorm.InstanceNorm(4, backend=b),
        lambda b: layernorm.BatchNorm(4, backend=b),
    ]
    for make in makers:
        for backend, expected in (
            ("auto", "torch"),
            ("torch", "torch"),
            ("reference", "reference"),
        ):
            make(backend)(x)
            assert called.pop() == expected
    makers[-1]("auto")(x, mask)
    assert called.pop() == "reference"
    assert not called
