r"""DRAW, the Deep Recurrent Attentive Writer, and what a run of it trains.

T glimpses. At each of them the encoder looks at a part of the picture x and of the error of the
canvas so far, and the decoder writes to a part of the canvas:

$$ \hat x_t = x - \sigma(c_{t-1}), \qquad
   r_t = \mathrm{read}(x, \hat x_t; h^{dec}_{t-1}), \qquad
   h^{enc}_t = \mathrm{LSTM}([r_t, h^{dec}_{t-1}], h^{enc}_{t-1}) $$

$$ z_t \sim Q(z_t \mid h^{enc}_t) = N(m_t, s_t^2), \qquad
   h^{dec}_t = \mathrm{LSTM}(z_t, h^{dec}_{t-1}), \qquad
   c_t = c_{t-1} + \mathrm{write}(h^{dec}_t) $$

The loss is the variational bound in nats, -log P(x) at most: the cross-entropy of x under
Bernoulli pixels with means σ(c_T), plus for each glimpse the divergence of Q from N(0, 1),

$$ KL_t = \sum \tfrac12 (m_t^2 + s_t^2 - 1) - \log s_t . $$

To generate, z_t comes from N(0, 1), and the encoder is left out. Canvas and states start at 0.

Source: Gregor et al. 2015, equations 1 to 11 and 21 to 29; numbers of section 6.4 of the paper.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from layernorm.lab.data.binarized import binarized
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.lab.experiments.draw.window import Window, read, window, write
from layernorm.recurrent import LayerNormLSTM

METHODS = ("none", "layer")
NOISE, SEVERAL = 1, 2  # seeds of the posterior samples of evaluations, the same for all runs
CHUNK = 500  # pictures at once in an evaluation
SCALED_ON = 256  # pictures over which the control's summed inputs get unit variance
ROUNDS = 30
State = tuple[Tensor, Tensor]


class Drawing(NamedTuple):
    """The course of n drawings over T glimpses; the last three are empty for generated ones."""

    canvases: Float[Tensor, "t n size size"]  # logits of the pixels
    written: list[Window]
    mean: Float[Tensor, "t n z"] | None = None
    log_std: Float[Tensor, "t n z"] | None = None
    looked: list[Window] | None = None


class Draw(nn.Module):
    """The equations of this module's first lines."""

    def __init__(self, options, size: int) -> None:
        super().__init__()
        self.size, self.points = size, (options.read, options.write)
        self.hidden = hidden = options.hidden
        self.encoder = Recurrent(options, 2 * options.read**2 + hidden)
        self.decoder = Recurrent(options, options.latent)
        self.posterior = nn.Linear(hidden, 2 * options.latent)
        self.patch = nn.Linear(hidden, options.write**2)
        self.read_window, self.write_window = nn.Linear(hidden, 5), nn.Linear(hidden, 5)
        for linear in (self.posterior, self.patch, self.read_window, self.write_window):
            nn.init.zeros_(linear.bias)
        if options.initial_std is not None:
            for name, weight in self.named_parameters():
                if "weight" in name and "ln_" not in name:
                    nn.init.normal_(weight, std=options.initial_std)

    def forward(
        self, noise: Float[Tensor, "t n z"], x: Float[Tensor, "n size size"] | None = None
    ) -> Drawing:
        """Draw x with these samples of N(0, 1), a glimpse each; without x, generate."""
        n = noise.shape[1]
        canvas = noise.new_zeros(n, self.size, self.size)
        encoded = decoded = (noise.new_zeros(n, self.hidden),) * 2
        canvases, looked, written, posteriors = [], [], [], []
        for z in noise:
            h = decoded[0]
            if x is not None:
                looked.append(window(self.read_window(h), self.size, self.points[0]))
                patch = read(looked[-1], x, x - canvas.sigmoid())
                encoded = self.encoder(torch.cat([patch, h], -1), encoded)
                mean, log_std = self.posterior(encoded[0]).chunk(2, -1)
                posteriors.append((mean, log_std))
                z = mean + log_std.exp() * z
            decoded = self.decoder(z, decoded)
            written.append(window(self.write_window(decoded[0]), self.size, self.points[1]))
            patch = self.patch(decoded[0]).unflatten(-1, (-1, self.points[1]))
            canvas = canvas + write(written[-1], patch)
            canvases.append(canvas)
        if x is None:
            return Drawing(torch.stack(canvases), written)
        mean, log_std = (torch.stack(values) for values in zip(*posteriors, strict=True))
        return Drawing(torch.stack(canvases), written, mean, log_std, looked)


class Recurrent(nn.Module):
    """An LSTM, a step at a time. Both methods start from the weights that `nn.LSTMCell` draws,
    biases 0; the layer-normalized one is `LayerNormLSTM` on sequences of one step."""

    def __init__(self, options, inputs: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, options.hidden)
        nn.init.zeros_(self.cell.bias_ih)
        nn.init.zeros_(self.cell.bias_hh)
        if options.method == "none":
            return
        drawn = self.cell
        with torch.random.fork_rng(devices=[]):  # the rest of the model is drawn as without it
            self.cell = LayerNormLSTM(inputs, options.hidden, variant=options.variant)
        with torch.no_grad():
            self.cell.weight_ih_l0.copy_(drawn.weight_ih)
            self.cell.weight_hh_l0.copy_(drawn.weight_hh)

    def forward(self, x: Float[Tensor, "n i"], state: State) -> State:
        """The next state: h, which is also the output, and the cell."""
        if isinstance(self.cell, nn.LSTMCell):
            return self.cell(x, state)
        h, c = state
        _, (h, c) = self.cell(x[None], (h[None], c[None]))
        return h[0], c[0]


def divergence(
    mean: Float[Tensor, "*dims z"], log_std: Float[Tensor, "*dims z"]
) -> Float[Tensor, "*dims"]:
    """KL of N(mean, std²) from N(0, 1), in nats, summed over the last dimension."""
    return (0.5 * (mean.square() + (2 * log_std).exp() - 1) - log_std).sum(-1)


def reconstruction(
    canvas: Float[Tensor, "n size size"], x: Float[Tensor, "n size size"]
) -> Float[Tensor, " n"]:
    """-log P(x | z) of Bernoulli pixels whose logits are the canvas, in nats."""
    return cross_entropy(canvas, x, reduction="none").flatten(1).sum(1)


def log_weights(
    drawing: Drawing, noise: Float[Tensor, "t n z"], x: Float[Tensor, "n size size"]
) -> Float[Tensor, " n"]:
    """log P(x, z) - log Q(z | x) of these samples: its mean over samples is the bound on log P(x),
    the logarithm of the mean of its exponential is the importance-weighted one."""
    z = drawing.mean + drawing.log_std.exp() * noise
    gained = (0.5 * (z.square() - noise.square()) - drawing.log_std).sum((0, -1))
    return -reconstruction(drawing.canvases[-1], x) - gained


@torch.no_grad()
def rescale_(model: Draw, x: Float[Tensor, "n size size"], noise: Float[Tensor, "t n z"]) -> None:
    """Scale the weights so that both terms of both LSTMs' summed inputs start with unit variance.

    The control arm `rescaled`: W_x x and W_h h, over all units, glimpses and these pictures (W_h h
    from the second glimpse on; at the first one h is 0), biases at 0. What feeds what depends on
    the scales themselves, so they are set again and again. Raises `RuntimeError` where that does
    not settle within 1 %.
    """
    cells = (model.encoder.cell, model.decoder.cell)
    for turn in range(ROUNDS + 1):
        spreads = _spreads(model, x, noise)
        if turn == ROUNDS:
            break
        for cell, (inputs, states) in zip(cells, spreads, strict=True):
            cell.weight_ih /= inputs
            cell.weight_hh /= states
    if (off := max(abs(s - 1) for pair in spreads for s in pair)) > 0.01:
        raise RuntimeError(
            f"a term's standard deviation is off by {off:.3f} after {ROUNDS} rounds of scaling; "
            "use more rounds"
        )


def _spreads(model: Draw, x: Tensor, noise: Tensor) -> list[tuple[float, float]]:
    """The standard deviations of W_x x and W_h h of encoder and decoder."""
    seen: dict[nn.Module, list] = {model.encoder.cell: [], model.decoder.cell: []}
    hooks = [c.register_forward_pre_hook(lambda cell, args: seen[cell].append(args)) for c in seen]
    model(noise, x)
    for hook in hooks:
        hook.remove()
    spreads = []
    for cell, calls in seen.items():
        inputs = torch.cat([x for x, _ in calls]) @ cell.weight_ih.T
        states = torch.cat([h for _, (h, _) in calls[1:]]) @ cell.weight_hh.T
        spreads.append((float(inputs.std()), float(states.std())))
    return spreads


@cache
def marginal_bound(dataset: str, held_out: int) -> float:
    """The trivial baseline, in nats: every pixel by itself, 1 as often as in the training set."""
    there = binarized(dataset)
    share = ((there.train.double().sum(0) + 1) / (len(there.train) + 2)).logit()
    x = spaced(there.test, held_out).double()
    return float(reconstruction(share.expand_as(x), x).mean())


def spaced(pictures: UInt8[Tensor, "n size size"], count: int) -> UInt8[Tensor, "m size size"]:
    """So many of the pictures, evenly spaced: MNIST's test file begins with the neater half."""
    if count > len(pictures):
        raise ValueError(f"held_out must be at most {len(pictures)}, got {count}")
    return pictures[:: len(pictures) // count][:count]


class Drawer:
    """The task of a run (`experiment.Task`)."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        there = binarized(options.dataset)
        self.options, self.seed, self.device = options, seed, device
        self.x = there.train[: options.examples]
        self.batches = Shuffled(len(self.x), options.batch_size, seed)
        self.parts = {
            "validation": spaced(there.validation, options.held_out),
            "test": spaced(there.test, options.held_out),
        }
        if options.examples is not None:
            self.parts["train"] = self.x
        model = Draw(options, self.x.shape[-1])
        if options.rescaled:
            x = self.x[:SCALED_ON].float()
            rescale_(model, x, self.noise(len(x), generator(seed, 0)))
        self.model = model.to(device)

    def noise(self, n: int, random: torch.Generator) -> Float[Tensor, "t n z"]:
        shape = self.options.glimpses, n, self.options.latent
        return torch.randn(shape, generator=random).to(self.device)

    def loss(self, step: int) -> Tensor:
        x = self.x[self.batches(step)].to(self.device).float()
        drawing = self.model(self.noise(len(x), generator(self.seed, step)), x)
        kl = divergence(drawing.mean, drawing.log_std).sum(0)
        return (reconstruction(drawing.canvases[-1], x) + kl).mean()

    def evaluate(self) -> dict[str, float]:
        """`…_bound` in nats, and of it `…_kl`, of validation and test, and with `examples` of the
        pictures that are trained on; one sample of z for each picture, the same for all runs."""
        found = {}
        for name, pictures in self.parts.items():
            loss, kl = self.measured(pictures, generator(NOISE))
            found[f"{name}_bound"] = float(loss.mean() + kl.sum(0).mean())
            found[f"{name}_kl"] = float(kl.sum(0).mean())
        return found

    def measured(
        self, pictures: UInt8[Tensor, "n size size"], random: torch.Generator
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, "t n"]]:
        """The reconstruction loss of each picture, and each glimpse's KL, in float64."""
        losses, divergences = [], []
        for part in pictures.split(CHUNK):
            x = part.to(self.device).float()
            drawing = self.model(self.noise(len(x), random), x)
            losses.append(reconstruction(drawing.canvases[-1], x).double())
            divergences.append(divergence(drawing.mean, drawing.log_std).double())
        return torch.cat(losses), torch.cat(divergences, 1)

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        """Return, for the test pictures: `test_kl_1` … of each glimpse; `share_of_pixels`, the
        bound divided by that of the trivial baseline; and over `samples` samples of z, of
        `weighted` pictures, the bound `sampled_bound` with its standard error over the samples
        `sampled_bound_error`, and the importance-weighted bound `weighted_bound`."""
        self.model.eval()
        loss, kl = self.measured(self.parts["test"], generator(NOISE))
        steps = {f"test_kl_{t}": float(value) for t, value in enumerate(kl.mean(1), 1)}
        trivial = marginal_bound(self.options.dataset, self.options.held_out)
        steps["share_of_pixels"] = float((loss + kl.sum(0)).mean()) / trivial
        test = self.parts["test"]
        x = spaced(test, min(self.options.weighted, len(test))).to(self.device).float()
        random = generator(SEVERAL)
        weights = []
        for _ in range(self.options.samples):
            noise = self.noise(len(x), random)
            weights.append(log_weights(self.model(noise, x), noise, x).double())
        return steps | bounds(torch.stack(weights))


def bounds(weights: Float[Tensor, "k n"]) -> dict[str, float]:
    """Bounds on -log P from K samples of log P(x, z) - log Q(z | x) for each of n pictures.

    The importance-weighted one, -log of the mean of the exponentials, is never above the other
    (Jensen), and with more samples it comes down to -log P (Burda et al. 2016).
    """
    each = -weights.mean(1)
    error = each.std() / math.sqrt(len(each)) if len(each) > 1 else each.new_tensor(math.nan)
    weighted = math.log(len(weights)) - weights.logsumexp(0)
    return {
        "sampled_bound": float(each.mean()),
        "sampled_bound_error": float(error),
        "weighted_bound": float(weighted.mean()),
    }
