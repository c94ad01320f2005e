"""The network of 784-1000-1000-10, its arms' modules, and what a run trains."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm import methods, modules
from layernorm.lab import data
from layernorm.lab.analysis import activations, networks
from layernorm.lab.experiments.batches import Shuffled, generator

MEASURED = 5000  # training examples, the first, on which the training loss is measured
WATCHED = 1000  # validation examples whose summed inputs are watched
CHUNK = 2500  # cases at once in an evaluation


class UnbiasedBatchNorm(modules.BatchNorm):
    r"""Batch normalization that divides by $\sqrt{\frac{n}{n-1}\sigma^2+\epsilon}$ in training.

    For inputs (n, features). The running variance is unbiased in torch's, too, so evaluation is the
    same. Raises `ValueError` for a batch of one.
    """

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        if not self.training:
            return super().forward(input, mask)
        share = (len(input) - 1) / len(input)
        self.num_batches_tracked.add_(1)
        running = (self.running_mean, self.running_var)
        gain = self.weight * math.sqrt(share)
        settings = (True, self.momentum, self.eps * share)
        return nn.functional.batch_norm(input, *running, gain, self.bias, *settings)


class Noise(nn.Module):
    """In training, gives every unit the scale and mean that `draw` has drawn; nothing before it."""

    def __init__(self, units: int, size: float) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("scale", torch.ones(units), persistent=False)
        self.register_buffer("mean", torch.zeros(units), persistent=False)

    def draw(self, random: torch.Generator) -> None:
        scale, mean = torch.rand(2, len(self.mean), generator=random)
        self.scale.copy_(1 + self.size / 2 * scale)
        self.mean.copy_(self.size * (2 * mean - 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.mean if self.training else x


class Drift(activations.Watch):
    """The drift of the summed inputs of the second hidden layer since the start."""

    def curve(self, net: nn.Sequential) -> dict[str, float]:
        h, a = self._read(net)
        below = self.layer(h).detach()
        return {
            "drift": activations.drift(a, self.start),
            "drift_below": activations.drift(below, self.start),
        }


@cache
def splits(dataset: str) -> data.Splits:
    """Read once in a process. Raises as the data set does, saying what to do."""
    return getattr(data, dataset)()


def build(options, inputs: int) -> nn.Sequential:
    """The network at its start, drawn from torch's generator. Normalized arms of a seed start from
    the same weights; where layers have biases that are drawn, too, those of the first layer are
    the same. The scale of `rescaled` is set by `Mnist`, from data."""
    net = networks.mlp([inputs, *options.hidden, 10], options.method, options.activation)
    row = methods.method(options.method)
    if options.initial_scale != 1:
        networks.redraw_(net, options.initial_scale)
    if options.logits:
        plain = net[-1]
        net[-1] = row.layer(plain.in_features, plain.out_features)
        net[-1][0].weight = plain.weight
    for block in net:
        if isinstance(block, nn.Sequential) and row.norm is not None:
            units = block[0].out_features
            if options.unbiased:
                block[1] = UnbiasedBatchNorm(units)
            if not options.affine:
                block[1] = modules.LayerNorm(units, elementwise_affine=False)
            if options.noise:
                block.append(Noise(units, options.noise))
    return net


class Mnist:
    """The task of a run (`experiment.Task`)."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        there = splits(options.dataset)
        parts = {name: getattr(there, name) for name in ("train", "validation", "test")}
        on = {name: (p.x.flatten(1).to(device), p.y.to(device)) for name, p in parts.items()}
        self.x, self.y = (t[: options.examples] for t in on["train"])
        self.parts = {**on, "train": (self.x[:MEASURED], self.y[:MEASURED])}
        self.model = build(options, self.x.shape[1]).to(device)
        if options.rescaled:
            networks.rescale_(self.model, self.parts["train"][0])
        self.seed = seed
        self.batches = Shuffled(len(self.y), options.batch_size, seed)
        self.noise = [module for module in self.model.modules() if isinstance(module, Noise)]
        self.watch = None
        if options.watch:
            watched = on["validation"][0][:WATCHED]
            self.watch = Drift(self.model, watched, options.activation)

    def loss(self, step: int) -> Tensor:
        chosen = self.batches(step).to(self.y.device)
        for depth, noise in enumerate(self.noise):
            noise.draw(generator(self.seed, step, depth))
        return cross_entropy(self.model(self.x[chosen]), self.y[chosen])

    def evaluate(self) -> dict[str, float]:
        """Cross-entropy in nats and error in percent on every part; the drift, if watched."""
        out = {}
        for name, (x, y) in self.parts.items():
            logits = torch.cat([self.model(chunk) for chunk in x.split(CHUNK)]).double()
            out[f"{name}_nll"] = float(cross_entropy(logits, y))
            out[f"{name}_error"] = float((logits.argmax(1) != y).double().mean() * 100)
        return out | (self.watch.curve(self.model) if self.watch else {})

    def final(self) -> dict[str, float]:
        return {}
