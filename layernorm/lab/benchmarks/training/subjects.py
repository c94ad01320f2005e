"""The networks that `layernorm bench training` updates, and the definitions they must agree with.

The paper's MNIST network (`mlp`, section 6.6, ReLU), the small network of chapter 3's digits
(`digits`, tanh), a recurrent layer with a linear layer on every step (`lstm`); and `engine`, the
MNIST network updated by the experiments' trainer and by loops written by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layernorm import functional
from layernorm.lab.analysis import networks
from layernorm.lab.benchmarks import recurrent
from layernorm.lab.benchmarks.measure.case import Shape
from layernorm.lab.benchmarks.recurrent import loops
from layernorm.methods import FORMS, METHODS
from layernorm.modules import WeightNormLinear
from layernorm.recurrent import BatchNormLSTM, LayerNormLSTM

Parameters = dict[str, Tensor]
BASELINE = "none"
CASES, CLASSES = 512, 10
RATE, EPS = 1e-3, 1e-8  # of Adam


class Update:
    """A module with random data and an optimizer of its own; a call is one whole update."""

    def __init__(
        self, model: nn.Module, shape: Shape, sequences: bool, seed: int = 0, fused: bool = True
    ):
        self.model, self.sequences, self.next = model.train(), sequences, 0
        self.parameters = dict(model.named_parameters())
        steps, self.batch, inputs = shape[:3] if sequences else (1, *shape[:2])
        some, draw = next(iter(self.parameters.values())), torch.Generator().manual_seed(seed)
        self.x = torch.randn((steps, CASES, inputs), generator=draw).to(some)
        self.y = torch.randint(CLASSES, (steps, CASES), generator=draw).to(some.device)
        parameters = self.parameters.values()
        self.optimizer = torch.optim.Adam(parameters, lr=RATE, eps=EPS, fused=fused or None)

    def cases(self) -> tuple[Tensor, Tensor]:
        """x and the classes of the batch that comes next."""
        begin = self.next if self.next + self.batch <= CASES else 0
        self.next = begin + self.batch
        x, y = self.x[:, begin : self.next], self.y[:, begin : self.next]
        return x if self.sequences else x[0], y.flatten()

    def loss(self, step: int = 0) -> Tensor:
        """The loss of the batch that comes next."""
        x, y = self.cases()
        return F.cross_entropy(self.model(x), y)

    def __call__(self) -> Tensor:
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class ByEngine(Update):
    """The same update by the trainer of the experiments, its losses looked at as its loop does."""

    def __init__(self, model: nn.Module, shape: Shape, sequences: bool, seed: int = 0):
        from layernorm.lab.experiments import get, trainer
        from layernorm.lab.experiments.experiment import Config
        from layernorm.lab.experiments.options import Options

        super().__init__(model, shape, sequences, seed)
        experiment = replace(get("mnist"), task=lambda *_: self)
        config = Config("mnist", "cpu", "none", seed, Options(learning_rate=RATE))
        self.trainer = trainer.Trainer(experiment, config, self.x.device)
        self.optimizer, self.often, self.step = self.trainer.optimizer, trainer.CHECK_EVERY, 0

    def loss(self, step: int = 0) -> Tensor:
        self.last = super().loss()
        return self.last

    def __call__(self) -> Tensor:
        self.step += 1
        self.trainer.update(self.step)
        if self.trainer.kept == self.often:
            self.trainer.look()
        return self.last.detach()


@dataclass(frozen=True)
class Subject:
    """One implementation of a model: what is trained, and the definition it must agree with.

    Args:
        method: name in the table of methods.
        make: shape -> module, x of a batch -> logits.
        define: (the module, its parameters by name, x) -> logits, by the definitions alone.
        least: how many cases a batch must have.
        cuda: it needs a GPU.
        update: what one update is.
    """

    method: str
    make: Callable[[Shape], nn.Module]
    define: Callable[[nn.Module, Parameters, Tensor], Tensor]
    least: int = 1
    cuda: bool = False
    update: Callable[..., Update] = Update


class _TorchsWeightNorm(WeightNormLinear):
    """The same layer by the operator of `torch.nn.utils.parametrizations.weight_norm`."""

    @property
    def weight(self) -> Tensor:
        return torch._weight_norm(self.weight_v, self.weight_g, 0)


def _use(model: nn.Module, backend: str) -> nn.Module:
    for module in model.modules():
        if hasattr(module, "backend"):
            module.backend = backend
        if isinstance(module, WeightNormLinear):
            module.__class__ = _TorchsWeightNorm if backend == "torch" else WeightNormLinear
    return model


def _defined(model: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
    """By `layernorm.functional`."""
    twin = _use(copy.deepcopy(model), "reference").to(x.dtype)
    return torch.func.functional_call(twin, parameters, (x,))


def _dense(activation: str) -> dict[str, Subject]:
    def subject(method: str, backend: str, **limits: int) -> Subject:
        def make(shape: Shape) -> nn.Module:
            return _use(networks.mlp(shape[1:], method, activation), backend)

        return Subject(method, make, _defined, **limits)

    subjects = {BASELINE: subject("none", "torch")}
    for row in (row for row in METHODS.values() if row.dense and row.name != BASELINE):
        limits = {"least": 2} if row.name in FORMS and FORMS[row.name].over == "cases" else {}
        torchs_own = row.norm is None or hasattr(row.norm(1), "backend")
        for backend in ("reference", "torch") if torchs_own else ("reference",):
            subjects[f"{row.name}/{backend}"] = subject(row.name, backend, **limits)
    return subjects | {f"{m}/triton": subject(m, "triton", cuda=True) for m in ("layer", "rms")}


class Labelled(nn.Module):
    """A recurrent layer and, at every step, logits: x (T, B, I) -> (T B, classes)."""

    def __init__(self, layer: nn.Module, units: int):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(units, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0]).flatten(0, 1)


def bn_lstm(
    x: Tensor, weight_ih_l0, weight_hh_l0, bias_ih_l0, bn_ih_weight_l0, bn_hh_weight_l0,
    bn_c_weight_l0, bn_c_bias_l0,
) -> Tensor:  # fmt: skip
    """BN-LSTM in training, from `functional.batch_norm`, T times: Cooijmans et al. 2017, sec. 3."""

    def norm(a: Tensor, gain: Tensor, bias: Tensor | None = None) -> Tensor:
        return functional.batch_norm(a, None, None, gain, bias, training=True)

    h = c = x.new_zeros(x.shape[1], weight_hh_l0.shape[1])
    outputs = []
    for x_t in x:
        gates = norm(h @ weight_hh_l0.T, bn_hh_weight_l0) + norm(
            x_t @ weight_ih_l0.T, bn_ih_weight_l0
        )
        i, f, g, o = (gates + bias_ih_l0).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(norm(c, bn_c_weight_l0, bn_c_bias_l0))
        outputs.append(h)
    return torch.stack(outputs)


def _recurrent(
    method: str, layer: Callable[[int, int], nn.Module], loop: loops.Loop, least: int = 1
) -> Subject:
    def make(shape: Shape) -> nn.Module:
        *_, inputs, units = shape
        made = layer(inputs, units)
        recurrent.fill(made, units, 0)
        return Labelled(made, units)

    def define(model: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
        own = {n.removeprefix("layer."): p for n, p in parameters.items() if n.startswith("layer.")}
        y = loop(x, **own)
        return F.linear(y, parameters["head.weight"], parameters["head.bias"]).flatten(0, 1)

    return Subject(method, make, define, least)


_LSTM, _PLAIN = recurrent.SUBJECTS["lstm"], _dense("relu")[BASELINE]
SUBJECTS: dict[str, dict[str, Subject]] = {
    "mlp": _dense("relu"),
    "digits": _dense("tanh"),
    # A loop without norms tells what of a loop with norms is the loop.
    "lstm": {
        BASELINE: _recurrent("none", nn.LSTM, loops.lstm),
        "none/loop": _recurrent("none", _LSTM["plain loop"].make, loops.lstm),
        "batch/reference": _recurrent("batch", BatchNormLSTM, bn_lstm, least=2),
        "layer/reference": _recurrent(
            "layer", partial(LayerNormLSTM, backend="reference"), loops.ln_lstm
        ),
        "layer/fused": _recurrent("layer", partial(LayerNormLSTM, backend="fused"), loops.ln_lstm),
    },
    "engine": {
        "bare loop": _PLAIN,
        "engine": replace(_PLAIN, update=ByEngine),
        "bare loop, default Adam": replace(_PLAIN, update=partial(Update, fused=False)),
    },
}


def make_update(
    subject: Subject,
    model: str,
    shape: Shape,
    device: torch.device | str = "cpu",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Update:
    """A subject's update; weights as torch draws them, gains and biases moved from 1 and 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = subject.make(shape)
        for name, parameter in made.named_parameters():
            if parameter.dim() == 1 and not name.startswith("layer."):
                parameter.data += 0.1 * torch.randn_like(parameter)
    return subject.update(made.to(device, dtype), shape, model == "lstm", seed)
