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


class HasteGRU(nn.Module):
    """The same for haste's GRU."""

    def __init__(self, input_size, hidden_size, batch_first=False):
        super().__init__()
        sizes = {"kernel": (input_size, 3 * hidden_size),
                 "recurrent_kernel": (hidden_size, 3 * hidden_size), "bias": (3 * hidden_size,),
                 "recurrent_bias": (3 * hidden_size,), "gamma": (2, 3 * hidden_size)}  # fmt: skip
        for name, size in sizes.items():
            setattr(self, name, nn.Parameter(torch.empty(size)))

    def forward(self, x):
        h = x.new_zeros(x.shape[1], len(self.recurrent_kernel))
        outputs = []
        for x_t in x:
            a_x = F.layer_norm(x_t @ self.kernel, self.bias.shape, self.gamma[0]) + self.bias
            a_h = F.layer_norm(h @ self.recurrent_kernel, self.bias.shape, self.gamma[1])
            (z, r, n), (z_h, r_h, n_h) = a_x.chunk(3, 1), (a_h + self.recurrent_bias).chunk(3, 1)
            z = (z + z_h).sigmoid()
            h = z * h + (1 - z) * (n + (r + r_h).sigmoid() * n_h).tanh()
            outputs.append(h)
        return torch.stack(outputs), h[None]


def flashrnn(Wx, R, b, states=None, function="slstm", backend="cuda_fused"):
    """FlashRNN's shapes: (B, T, gates, heads, D), (gates, heads, D, D), (4, heads, D),
    (states, B, 1, heads, D); what its loops without kernels compute."""
    (batch, steps, gates, heads, units), (s, *rest) = Wx.shape, states.shape
    assert Wx.is_contiguous()
    assert heads == 1
    assert (gates, s, backend) == {"lstm": (4, 2, "cuda_fused"), "gru": (3, 1, "cuda")}[function]
    assert R.shape == (gates, 1, units, units)
    assert b.shape == (4, 1, units)
    assert rest == [batch, 1, 1, units]
    state, every = states[:, :, 0, 0], []
    for t in range(steps):
        product = torch.einsum("bi,goi->gbo", state[0], R[:, 0])
        state = {"lstm": _lstm, "gru": _gru}[function](Wx[:, t, :, 0].unbind(1), product, b, state)
        every.append(state)
    return torch.stack(every, 2).unsqueeze(3), None


def _lstm(x, product, b, state):
    i, f, z, o = torch.stack(x) + product + b
    c = f.sigmoid() * state[1] + i.sigmoid() * z.tanh()
    return torch.stack((o.sigmoid() * c.tanh(), c))


def _gru(x, product, b, state):
    candidate, (r, z) = product[0] + b[0], (x[g] + product[g + 1] + b[g + 1] for g in (0, 1))
    new = (x[2] + b[3] + r.sigmoid() * candidate).tanh()
    return (z.sigmoid() * state[0] + (1 - z.sigmoid()) * new)[None]


@pytest.fixture
def installed(monkeypatch):
    haste = {"LayerNormLSTM": HasteLSTM, "LayerNormGRU": HasteGRU}
    for module, names in (("haste_pytorch", haste), ("flashrnn", {"flashrnn": flashrnn})):
        made = ModuleType(module)
        made.__spec__ = object()
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, module, made)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_each_agrees_with_its_definition(installed, kind, mode):
    names = ("torch", "haste", "flashrnn")
    case = GpuCase(kind, SHAPE, device="cpu", mode=mode, implementations=names, rounds=6)
    rows = measure(case, ticking())
    assert {row.implementation: row.status for row in rows} == dict.fromkeys(names, "measured")
    assert [row.method for row in rows] == ["none", "layer", "none"]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_layer_with_gates_in_another_order_is_wrong(installed, monkeypatch, kind):
    real = sys.modules["flashrnn"].flashrnn

    def other(Wx, *args, **options):
        return real(Wx.flip(2).contiguous(), *args, **options)

    monkeypatch.setattr(sys.modules["flashrnn"], "flashrnn", other)
    case = GpuCase(kind, SHAPE, device="cpu", implementations=("torch", "flashrnn"), rounds=6)
    status = measure(case, ticking())[1].status
    assert status.startswith("wrong: ")
    assert " is off by " in status


def test_each_stands_in_the_table_that_records_depend_on_by_row():
    assert all(peers.MODULES.keys() < subjects.keys() for subjects in SUBJECTS.values())


def test_installed_peers_are_in_the_plan_and_absent_ones_are_named(installed, monkeypatch):
    plan = [case for case in gpu_plan() if case.shape in TARGETS]
    assert {case.operation for case in plan} == SUBJECTS.keys()
    assert all({"haste", "flashrnn"} < set(case.implementations) for case in plan)
    assert peers.absent() == []
    for name in ("haste_pytorch", "flashrnn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert peers.absent() == ["haste: not installed", "flashrnn: not installed"]
    assert not any({"haste", "flashrnn"} & set(case.implementations) for case in gpu_plan())
