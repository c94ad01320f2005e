r"""The attentive reader, reading passages in one direction, and what a run of it trains.

Words are embedded, x = E[word]; one LSTM reads the passage, d_1 ... d_T, another one the question,
whose last state is q. Attention looks for the words of the passage that answer it:

$$ s_t = v^\top \tanh\big(W_d d_t + W_q q + (B d_t \cdot B q)\,\mathbf 1\big), \qquad
   \alpha = \mathrm{softmax}(s), \qquad c = \sum_t \alpha_t d_t $$

$$ g = \tanh\Big(W_c c + b + W_o q + W_m \frac1T \sum_t d_t\Big), \qquad
   p = \mathrm{softmax}(W_p\, g + b_p) $$

The product B d_t · B q is one number, added to every unit. The softmax of p is over the whole
vocabulary, not over entities alone. Dropout acts on embeddings and on g.

Source: Hermann et al. 2015, in the form of Cooijmans et al. 2017, section 5.3, whose code has the
bilinear term and W_m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.analysis.networks import rescale_lstm_
from layernorm.lab.data.cloze import Stories, World, draw, permuted
from layernorm.lab.experiments.attentive_reader.news import News, news
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.modules import BatchNorm
from layernorm.recurrent import BatchNormLSTM, LayerNormLSTM

METHODS = ("none", "layer", "batch")
VALIDATION, TEST, PERMUTED = 1, 2, 3  # seeds of what all runs share; one number, so not a batch's
CHUNK = 500  # stories read at once when they are not trained on
SCALED_ON = 256  # stories over which the control's summed inputs get unit variance


class Encoder(nn.Module):
    """One LSTM over sequences (T, N, inputs) that end after `lengths` steps.

    What it gives at a step depends on no padding: the LSTM goes one way and padding comes last, and
    batch statistics leave it out.
    """

    def __init__(self, options, longest: int) -> None:
        super().__init__()
        self.layer = recurrent(options, longest)
        self.h_0 = self.c_0 = None
        if options.learn_initial_state:
            self.h_0, self.c_0 = (nn.Parameter(torch.zeros(options.hidden)) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "t n i"], lengths: Int[Tensor, " n"]
    ) -> Float[Tensor, "t n h"]:
        hx = None
        if self.h_0 is not None:
            hx = tuple(state.expand(1, x.shape[1], -1) for state in (self.h_0, self.c_0))
        if isinstance(self.layer, BatchNormLSTM):
            return self.layer(x, hx, lengths)[0]
        return self.layer(x, hx)[0]


def recurrent(options, longest: int) -> nn.Module:
    """The LSTM of a method. All methods start from the weights that `nn.LSTM` draws, biases 0."""
    sizes = options.embedding, options.hidden
    lstm = nn.LSTM(*sizes)
    nn.init.zeros_(lstm.bias_ih_l0)
    nn.init.zeros_(lstm.bias_hh_l0)
    if options.method == "none":
        return lstm
    drawn = {"weight_ih_l0": lstm.weight_ih_l0, "weight_hh_l0": lstm.weight_hh_l0}
    with torch.random.fork_rng(devices=[]):  # the rest of the model is drawn as without a method
        if options.method == "layer":
            layer = LayerNormLSTM(*sizes)
        else:
            layer = BatchNormLSTM(
                *sizes,
                max_length=longest,
                statistics=options.statistics,
                min_samples=options.min_samples,
            )
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name in drawn:
                parameter.copy_(drawn[name])
            elif name.startswith(("ln_", "bn_")) and "_weight_" in name:
                parameter.fill_(options.gain)
    return layer


class Normed(nn.Module):
    """Batch normalization of a tanh's summed inputs, in the arm `batch/everywhere`."""

    def __init__(self, options) -> None:
        super().__init__()
        self.norm = BatchNorm(options.hidden)
        nn.init.constant_(self.norm.weight, options.gain)

    def forward(
        self, a: Float[Tensor, "*t n h"], mask: Bool[Tensor, "t n"] | None = None
    ) -> Float[Tensor, "*t n h"]:
        if mask is None:
            return self.norm(a)
        return self.norm(a.permute(1, 2, 0), mask=mask.T).permute(2, 0, 1)


class Unchanged(nn.Module):
    def forward(self, a: Tensor, mask: Tensor | None = None) -> Tensor:
        return a


class Reading(NamedTuple):
    """Logits (n, vocabulary), and for each story the attention to every word (n, t)."""

    logits: Tensor
    attention: Tensor


class Reader(nn.Module):
    """The equations of this module's first lines; parameters carry their names."""

    def __init__(self, options, vocabulary: int, longest: int) -> None:
        super().__init__()
        hidden = options.hidden
        self.embedding = nn.Embedding(vocabulary, options.embedding)
        nn.init.normal_(self.embedding.weight, std=options.embedding_std)
        self.passage, self.question = Encoder(options, longest), Encoder(options, longest)
        self.w_d, self.w_q, self.bilinear, self.w_o, self.w_m = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(5)
        )
        self.v = nn.Linear(hidden, 1, bias=False)
        self.w_c = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, vocabulary)
        for linear in (module for module in self.children() if isinstance(module, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)  # as in the code of Cooijmans et al.
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        self.dropout = nn.Dropout(options.dropout)
        normed = Normed if options.everywhere else lambda _: Unchanged()
        self.norm_attention, self.norm_g = normed(options), normed(options)

    def forward(self, stories: Stories) -> Float[Tensor, "n vocabulary"]:
        return self.read(stories).logits

    def read(self, stories: Stories) -> Reading:
        lengths = stories.lengths
        mask = torch.arange(stories.passages.shape[1], device=lengths.device)[:, None] < lengths
        d = self.passage(self.embedded(stories.passages), lengths)
        states = self.question(self.embedded(stories.questions), stories.question_lengths)
        cases = torch.arange(len(stories), device=lengths.device)
        q = states[stories.question_lengths - 1, cases]
        attention = self.attention(d, q, mask)
        context = (attention.unsqueeze(-1) * d).sum(0)
        mean = (d * mask.unsqueeze(-1)).sum(0) / lengths.unsqueeze(-1)
        a = self.w_c(context) + self.w_o(q) + self.w_m(mean)
        g = torch.tanh(self.norm_g(a))
        return Reading(self.output(self.dropout(g)), attention.T)

    def embedded(self, words: Int[Tensor, "n t"]) -> Float[Tensor, "t n i"]:
        return self.dropout(self.embedding(words.T))

    def attention(
        self, d: Float[Tensor, "t n h"], q: Float[Tensor, "n h"], mask: Bool[Tensor, "t n"]
    ) -> Float[Tensor, "t n"]:
        """The weights of the passage's words, 0 on padding."""
        both = (d * self.half_bilinear(q)).sum(-1, keepdim=True)
        a = self.norm_attention(self.w_d(d) + self.w_q(q) + both, mask)
        scores = self.v(torch.tanh(a)).squeeze(-1)
        return scores.masked_fill(~mask, -torch.inf).softmax(0)

    def half_bilinear(self, q: Float[Tensor, "n h"]) -> Float[Tensor, "n h"]:
        """BᵀB q, whose product with d is B d · B q: one matrix product a story, not a word."""
        return self.bilinear(q) @ self.bilinear.weight


@torch.no_grad()
def rescale_(model: Reader, stories: Stories) -> None:
    """Scale the weights so that each term of every summed input starts with unit variance.

    The control arm `rescaled`. In the order in which they act: both terms of both LSTMs, the three
    terms of the attention's tanh, its scores, the three terms of g's tanh, and the logits, each by
    one factor; biases start at 0. Statistics are taken over the first words of the stories, as many
    as the shortest one has, so that there is no padding.
    """

    def first(words: Tensor, lengths: Tensor) -> Tensor:
        return model.embedding(words.T)[: int(lengths.min())]

    x = first(stories.passages, stories.lengths)
    asked = first(stories.questions, stories.question_lengths)
    rescale_lstm_(model.passage.layer, x)
    rescale_lstm_(model.question.layer, asked)
    d, q = model.passage.layer(x)[0], model.question.layer(asked)[0][-1]
    both = (d * model.half_bilinear(q)).sum(-1)
    model.bilinear.weight /= both.std().sqrt()
    unit_(model.w_d, d)
    unit_(model.w_q, q)
    a = model.w_d(d) + model.w_q(q) + (d * model.half_bilinear(q)).sum(-1, keepdim=True)
    scores = unit_(model.v, torch.tanh(a))
    context = (scores.softmax(0) * d).sum(0)
    terms = ((model.w_c, context), (model.w_o, q), (model.w_m, d.mean(0)))
    a = sum(unit_(linear, h) for linear, h in terms)
    unit_(model.output, torch.tanh(a))


def unit_(linear: nn.Linear, x: Tensor) -> Tensor:
    """Scale a layer (its bias is 0) so that what it gives for x has unit variance; returns that."""
    linear.weight /= linear(x).std()
    return linear(x)


@cache
def held_out(world: World, cases: int) -> dict[str, Stories]:
    """The stories of validation and test: the same ones for every arm and seed."""
    parts = {"validation": VALIDATION, "test": TEST}
    return {name: draw(world, cases, generator(seed)) for name, seed in parts.items()}


@dataclass(frozen=True)
class Drawn:
    """Stories from the generator, as `news.News` gives those of CNN."""

    world: World

    @property
    def vocabulary(self) -> int:
        return self.world.vocabulary

    @property
    def entities(self) -> int:
        return self.world.entities

    @property
    def longest(self) -> int:
        return self.world.longest

    def held_out(self, cases: int) -> dict[str, Stories]:
        return held_out(self.world, cases)

    def fixed(self, cases: int, seed: int) -> Stories:
        return draw(self.world, cases, generator(seed, 0))

    def fresh(self, cases: int, seed: int) -> Callable[[int], Stories]:
        return lambda step: draw(self.world, cases, generator(seed, step))


def source(options) -> Drawn | News:
    """The options' stories."""
    return news(options.sentences) if options.data == "cnn" else Drawn(options.world())


class AttentiveReader:
    """The task: name who the question asks about. Every update sees fresh stories, or, with
    `examples`, those of a fixed set."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        told, self.device = source(options), device
        self.entities, self.fresh = told.entities, told.fresh(options.batch_size, seed)
        held = told.held_out(options.held_out)
        self.parts = {name: stories.to(device) for name, stories in held.items()}
        self.few = None
        if options.examples is not None:
            self.few = told.fixed(options.examples, seed)
            self.shuffled = Shuffled(options.examples, options.batch_size, seed)
            self.parts["train"] = self.few.to(device)
        model = Reader(options, told.vocabulary, told.longest)
        if options.rescaled:
            rescale_(model, told.fixed(SCALED_ON, seed))
        self.model = model.to(device)

    def batch(self, step: int) -> Stories:
        stories = self.fresh(step) if self.few is None else self.few[self.shuffled(step)]
        return stories.to(self.device)

    def loss(self, step: int) -> Tensor:
        stories = self.batch(step)
        return cross_entropy(self.model(stories), stories.answers)

    def evaluate(self) -> dict[str, float]:
        """`…_nll` in nats and `…_error` in percent, of validation and test, and with `examples` of
        the stories that are trained on."""
        found = {}
        for name, stories in self.parts.items():
            nll, answers = answered(self.model, stories)
            wrong = (answers != stories.answers).double()
            found[f"{name}_nll"] = float(nll.mean())
            found[f"{name}_error"] = 100 * float(wrong.mean())
        return found

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        """`moved_with_markers`: the percentage of test stories whose answer is renamed with the
        entity markers when these are permuted."""
        self.model.eval()
        stories = self.parts["test"]
        again = permuted(stories, self.entities, generator(PERMUTED))
        before, after = (answered(self.model, part)[1] for part in (stories, again))
        expected = permuted(
            Stories(**{**vars(stories), "answers": before}), self.entities, generator(PERMUTED)
        )
        return {"moved_with_markers": 100 * float((expected.answers == after).double().mean())}


def answered(model: nn.Module, stories: Stories) -> tuple[Float[Tensor, " n"], Int[Tensor, " n"]]:
    """The cross-entropy of each story in nats, and the word that the model answers with."""
    found = []
    for i in range(0, len(stories), CHUNK):
        part = stories[i : i + CHUNK]
        logits = model(part)
        nll = cross_entropy(logits.double(), part.answers, reduction="none")
        found.append((nll, logits.argmax(1)))
    nll, answers = zip(*found, strict=True)
    return torch.cat(nll), torch.cat(answers)
