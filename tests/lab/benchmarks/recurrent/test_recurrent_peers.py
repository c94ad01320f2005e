"""Other people's recurrent layers: found if installed, called as their libraries want, gated."""

import sys
from types import ModuleType

import pytest
import torch
from lab.benchmarks.benching import ticking
from torch import nn
from torch.nn import functional as F

from layernorm.lab.benchmarks.measure import measure
from layernorm.lab.benchmarks.recurrent import SUBJECTS, GpuCase, peers
from layernorm.lab.benchmarks.recurrent.plan import TARGETS, gpu_plan

SHAPE = (4, 2, 3, 5)


class HasteLSTM(nn.Module):
    """As haste names and shapes its parameters; its loop by torch's own norm."""

    def __init__(self, input_size, hidden_size, batch_first=False, forget_bias=1.0):
        super().__init__()
        assert forget_bias == 0
        sizes = {"kernel": (input_size, 4 * hidden_size), "bias": (4 * hidden_size,),
                 "recurrent_kernel": (hidden_size, 4 * hidden_size), "gamma": (2, 4 * hidden_size),
                 "gamma_h": (hidden_size,), "beta_h": (hidden_size,)}  # fmt: skip
        order = ("kernel", "recurrent_kernel", "bias", "gamma", "gamma_h", "beta_h")
        for name in order:
            setattr(self, name, nn.Parameter(torch.empty(sizes[name])))

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], len(self.gamma_h))
        outputs = []
        for x_t in x:
            a = self.bias
            for product, gain in zip((x_t @ self.kernel, h @ self.recurrent_kernel), self.gamma,
                                     strict=True):  # fmt: skip
                a = a + F.layer_norm(product, product.shape[-1:], gain)
            i, g, f, o = a.chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * F.layer_norm(c, c.shape[-1:], self.gamma_h, self.beta_h).tanh()
            outputs.append(h)
        return torch.stack(outputs), None


def flashrnn(Wx, R, b, states=None, function="slstm", backend="cuda_fused"):
    """FlashRNN's shapes: (B, T, 4, heads, D), (4, heads, D, D), (4, heads, D), (2, B, 1, heads, D);
    what its loop without kernels computes."""
    (batch, steps, four, heads, units), (s, *rest) = Wx.shape, states.shape
    assert (four, heads, function, s) == (4, 1, "lstm", 2)
    assert R.shape == (4, 1, units, units)
    assert b.shape == (4, 1, units)
    assert rest == [batch, 1, 1, units]
    h, c = states[0, :, 0, 0], states[1, :, 0, 0]
    every = []
    for t in range(steps):
        raw = Wx[:, t, :, 0] + torch.einsum("bi,goi->bgo", h, R[:, 0]) + b[:, 0]
        i, f, z, o = raw.unbind(1)
        c = f.sigmoid() * c + i.sigmoid() * z.tanh()
        h = o.sigmoid() * c.tanh()
        every.append(torch.stack((h, c)))
    return torch.stack(every, 2).unsqueeze(3), None


@pytest.fixture
def installed(monkeypatch):
    for module, name, value in (("haste_pytorch", "LayerNormLSTM", HasteLSTM),
                                ("flashrnn", "flashrnn", flashrnn)):  # fmt: skip
        made = ModuleType(module)
        made.__spec__ = object()
        setattr(made, name, value)
        monkeypatch.setitem(sys.modules, module, made)


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_each_agrees_with_its_definition(installed, mode):
    names = ("torch", "haste", "flashrnn")
    case = GpuCase("lstm", SHAPE, device="cpu", mode=mode, implementations=names, rounds=6)
    rows = measure(case, ticking())
    assert {row.implementation: row.status for row in rows} == dict.fromkeys(names, "measured")
    assert [row.method for row in rows] == ["none", "layer", "none"]


def test_a_layer_with_gates_in_another_order_is_wrong(installed, monkeypatch):
    real = sys.modules["flashrnn"].flashrnn

    def other(Wx, *args, **options):
        return real(Wx.flip(2), *args, **options)

    monkeypatch.setattr(sys.modules["flashrnn"], "flashrnn", other)
    case = GpuCase("lstm", SHAPE, device="cpu", implementations=("torch", "flashrnn"), rounds=6)
    status = measure(case, ticking())[1].status
    assert status.startswith("wrong: ")
    assert " is off by " in status


def test_each_stands_in_the_table_that_records_depend_on_by_row():
    assert peers.MODULES.keys() == SUBJECTS.keys()
    for kind, modules in peers.MODULES.items():
        assert modules.keys() == SUBJECTS[kind].keys() & {"haste", "flashrnn"}


def test_installed_peers_are_in_the_plan_and_absent_ones_are_named(installed, monkeypatch):
    plan = [case for case in gpu_plan() if case.operation == "lstm" and case.shape in TARGETS]
    assert all({"haste", "flashrnn"} < set(case.implementations) for case in plan)
    assert peers.absent(("lstm", "gru")) == []
    for name in ("haste_pytorch", "flashrnn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert peers.absent(("gru", "lstm")) == ["haste: not installed", "flashrnn: not installed"]
    assert not any({"haste", "flashrnn"} & set(case.implementations) for case in gpu_plan())
