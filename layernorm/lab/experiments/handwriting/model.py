r"""Graves' network that writes a given text, and what a run of it trains.

At step t the network has read the points up to $x_t$ and says where the next one may lie. Three
LSTMs stand above each other, all of them see the point, and the output sees all of them:

$$ h^1_t = \mathrm{LSTM}_1(x_t, w_{t-1}), \quad h^2_t = \mathrm{LSTM}_2(x_t, h^1_t, w_t), \quad
   h^3_t = \mathrm{LSTM}_3(x_t, h^2_t, w_t), \quad \hat y_t = b + \sum_n W_n h^n_t $$

The window w slides along the text c (one vector a character) as the first layer says:

$$ (\hat\alpha, \hat\beta, \hat\kappa)_t = V h^1_t + v, \qquad
   \kappa_t = \kappa_{t-1} + s\,e^{\hat\kappa_t}, \qquad
   \varphi_t(u) = \sum_k e^{\hat\alpha_k - e^{\hat\beta_k} (\kappa_k - u)^2}, \qquad
   w_t = \sum_u \varphi_t(u)\, c_u $$

with u = 1, 2, ... Graves has s = 1; with s near the letters that one point is worth, an untrained
window moves along the text at about the pen's pace. `mixture` has the loss.

Source: Graves 2013, Generating sequences with recurrent neural networks, sections 4 and 5.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layernorm.lab.analysis.networks import rescale_lstm_
from layernorm.lab.data import iam_ondb
from layernorm.lab.data.handwriting import ALPHABET, Lines, draw
from layernorm.lab.experiments.batches import Shuffled
from layernorm.lab.experiments.handwriting.mixture import negative_log_likelihood
from layernorm.recurrent import LayerNormLSTM

METHODS = ("none", "layer")
TRAIN, VALIDATION, TEST = 1, 2, 3  # seeds of what all runs share
MEASURED = 32  # training lines, the first, on which the training loss is measured
ROUNDS = 3  # of scaling the first layer and reading the window again
SCALED_ON = 32  # lines over which the control's summed inputs get unit variance
CHUNK = 96  # lines at once in an evaluation


class Steps(NamedTuple):
    """The state after a call: that of the three layers, and the window's places and w."""

    states: list[tuple[Tensor, Tensor]]
    kappa: Float[Tensor, "n k"]
    w: Float[Tensor, "n c"]


class Read(NamedTuple):
    """Outputs (t, n, 1 + 6M), the window's weights (t, n, u), its places (t, n, k)."""

    y: Tensor
    phi: Tensor
    kappa: Tensor


class Layer(nn.Module):
    """An LSTM of the method: over a whole sequence, or step by step, with its biases at 0."""

    def __init__(self, method: str, inputs: int, hidden: int) -> None:
        super().__init__()
        lstm = nn.LSTM(inputs, hidden)  # draws the weights of all methods
        nn.init.zeros_(lstm.bias_ih_l0)
        nn.init.zeros_(lstm.bias_hh_l0)
        self.lstm = lstm
        if method == "layer":
            with torch.random.fork_rng(devices=[]):
                self.lstm = LayerNormLSTM(inputs, hidden)
            with torch.no_grad():
                self.lstm.weight_ih_l0.copy_(lstm.weight_ih_l0)
                self.lstm.weight_hh_l0.copy_(lstm.weight_hh_l0)

    def forward(self, x: Float[Tensor, "t n i"], state: tuple[Tensor, Tensor]):
        y, (h, c) = self.lstm(x, tuple(part.unsqueeze(0) for part in state))
        return y, (h[0], c[0])

    def stepping(self):
        """A function of a step's input and state, (n, i), (n, h) and (n, h), to the new state;
        without the checks of a whole sequence, which take longer than a step."""
        if isinstance(self.lstm, LayerNormLSTM):
            weights = self.lstm._weights("_l0")
            return lambda x, state: self.lstm._sequence(x, None, state, weights, False)[1:]
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(self.lstm, name) for name in names]
        return lambda x, state: torch.lstm_cell(x, state, *weights)


class Writer(nn.Module):
    """The equations of this module's first lines.

    `advance` is s. `points` (t, n, 3) with `text` (n, u), padded with anything beyond
    `text_lengths`, give what the network says after each point.
    """

    def __init__(self, method, hidden, components, windows, advance) -> None:
        super().__init__()
        characters = len(ALPHABET) + 1  # the last one stands for all others
        self.hidden, self.windows, self.advance = hidden, windows, advance
        self.first = Layer(method, 3 + characters, hidden)
        self.second, self.third = (Layer(method, 3 + hidden + characters, hidden) for _ in range(2))
        self.window = nn.Linear(hidden, 3 * windows)
        self.output = nn.Linear(3 * hidden, 1 + 6 * components)
        for linear in (self.window, self.output):
            nn.init.zeros_(linear.bias)
        self.register_buffer("one_hot", torch.eye(characters), persistent=False)

    def start(self, n: int) -> Steps:
        """Before the first point: states and window at 0."""
        zero = self.one_hot.new_zeros
        states = [(zero(n, self.hidden), zero(n, self.hidden)) for _ in range(3)]
        return Steps(states, zero(n, self.windows), zero(n, len(self.one_hot)))

    def characters(self, lines: Lines) -> Float[Tensor, "n u c"]:
        """The text as one-hot vectors, 0 where it has ended."""
        there = torch.arange(lines.text.shape[1], device=lines.text.device)
        there = there < lines.text_lengths[:, None]
        return self.one_hot[lines.text] * there[..., None]

    def forward(self, lines: Lines) -> Float[Tensor, "t n outputs"]:
        return self.read(lines)[0].y

    def read(self, lines: Lines) -> tuple[Read, Steps]:
        """Return the input at each point of the lines; the first is a lifted pen at rest."""
        return self.steps(inputs(lines), self.characters(lines), self.start(len(lines)))

    def steps(
        self, x: Float[Tensor, "t n 3"], text: Float[Tensor, "n u c"], at: Steps
    ) -> tuple[Read, Steps]:
        """Go on for some points; called again with what it leaves, as if it had not stopped."""
        step, (one, two, three) = self.first.stepping(), at.states
        places = torch.arange(1.0, text.shape[1] + 1, device=x.device, dtype=x.dtype)
        kappa, w, seen = at.kappa, at.w, []
        for x_t in x:
            one = step(torch.cat([x_t, w], 1), one)
            alpha, beta, moved = self.window(one[0]).chunk(3, 1)
            kappa = torch.add(kappa, moved.exp(), alpha=self.advance)
            off = (kappa.unsqueeze(2) - places).square() * beta.exp().unsqueeze(2)
            phi = (alpha.unsqueeze(2) - off).exp().sum(1)
            w = torch.bmm(phi.unsqueeze(1), text).squeeze(1)
            seen.append((one[0], w, phi, kappa))
        h_1, ws, phis, kappas = map(torch.stack, zip(*seen, strict=True))
        h_2, two = self.second(torch.cat([x, h_1, ws], -1), two)
        h_3, three = self.third(torch.cat([x, h_2, ws], -1), three)
        y = self.output(torch.cat([h_1, h_2, h_3], -1))
        return Read(y, phis, kappas), Steps([one, two, three], kappa, w)


def build(options) -> Writer:
    """The network at its start; all methods start from the same weights."""
    sizes = (options.hidden, options.components, options.windows, options.advance)
    return Writer(options.method, *sizes)


def inputs(lines: Lines) -> Float[Tensor, "t n 3"]:
    """The points one step late: first a pen that is lifted and at rest."""
    before = torch.zeros_like(lines.points[:, :1])
    before[..., 2] = 1.0
    return torch.cat([before, lines.points[:, :-1]], 1).transpose(0, 1)


@torch.no_grad()
def rescale_(model: Writer, lines: Lines) -> None:
    """Scale the LSTMs' weights so that each term of their summed inputs starts with unit variance
    over these lines: the control arm `rescaled`.

    In the order in which they act, one factor a matrix. What the window gives the first layer
    depends on that layer, so the window is read again once that one is scaled. The matrices of the
    window and of the output stay, as layer normalization leaves them: what they give are a pace and
    a density, not summed inputs.
    """
    x, text, at = inputs(lines), model.characters(lines), model.start(len(lines))

    def windows() -> Float[Tensor, "t n c"]:
        return torch.einsum("tnu,nuc->tnc", model.steps(x, text, at)[0].phi, text)

    for _ in range(ROUNDS):
        seen = torch.cat([x, torch.cat([at.w[None], windows()[:-1]])], -1)
        rescale_lstm_(model.first.lstm, seen)
    ws, h = windows(), model.first(seen, at.states[0])[0]
    for layer in (model.second, model.third):
        below = torch.cat([x, h, ws], -1)
        rescale_lstm_(layer.lstm, below)
        h = layer(below, at.states[0])[0]


@cache
def _generated(held_out, examples, points, writers) -> dict[str, Lines]:
    """Lines of the fonts, of other writers in each part, standardized as the training lines are."""
    sizes = {"train": (examples, TRAIN), "validation": (held_out, VALIDATION)}
    sizes["test"] = (held_out, TEST)
    drawn = {name: draw(n, points, min(writers, n), seed) for name, (n, seed) in sizes.items()}
    train = drawn.pop("train").standardized()
    return {"train": train} | {name: part.standardized(train) for name, part in drawn.items()}


def parts(options) -> dict[str, Lines]:
    """Training, validation and test lines: the same ones for every arm and seed."""
    if options.dataset == "iam_ondb":
        return iam_ondb.load(options.points)
    return _generated(options.held_out, options.lines, options.points, options.writers)


class Handwriting:
    """The task: say where the pen goes next, given the text and where it has been."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        there = {name: part.to(device) for name, part in parts(options).items()}
        self.lines = there["train"][: options.examples]
        self.parts = {**there, "train": self.lines[:MEASURED]}
        self.batches = Shuffled(len(self.lines), options.batch_size, seed)
        self.model = build(options).to(device)
        if options.rescaled:
            rescale_(self.model, self.lines[:SCALED_ON])

    def loss(self, step: int) -> Tensor:
        """Nats a point, over the points of a batch."""
        batch = self.lines[self.batches(step).to(self.lines.points.device)]
        return of_points(self.model(batch), batch).sum() / batch.lengths.sum()

    def evaluate(self) -> dict[str, float]:
        """Return, for every part, the nats a point, and how much of the text the window has passed
        when the line ends: 1 if all of it, over 1 if it ran ahead."""
        found = {}
        for name, lines in self.parts.items():
            total, reached = 0.0, 0.0
            for i in range(0, len(lines), CHUNK):
                some = lines[i : i + CHUNK]
                read = self.model.read(some)[0]
                total += float(of_points(read.y, some).double().sum())
                last = read.kappa.mean(2).T.gather(1, some.lengths[:, None] - 1).squeeze(1)
                reached += float((last / some.text_lengths).double().sum())
            found[f"{name}_nll"] = total / int(lines.lengths.sum())
            found[f"{name}_reached"] = reached / len(lines)
        return found

    def final(self) -> dict[str, float]:
        return {}


def of_points(y: Float[Tensor, "t n outputs"], lines: Lines) -> Float[Tensor, "n t"]:
    """The negative log-likelihood of each point in nats, 0 beyond a line's end."""
    there = torch.arange(lines.points.shape[1], device=lines.lengths.device)
    there = there < lines.lengths[:, None]
    return negative_log_likelihood(y.transpose(0, 1), lines.points) * there
