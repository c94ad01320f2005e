r"""The skip-thought model (Kiros et al. 2015), and what a run of it trains.

An encoder reads a sentence of words x_1 ... x_T; its last state is the sentence's vector, the
thought h. Two decoders, for the sentence after and the one before, start from it:

$$ h = \mathrm{GRU}_e(E x_1, \dots, E x_T), \qquad d_0 = h, \qquad
   d_t = \mathrm{GRU}_\pm(E y_{t-1}, d_{t-1}), \qquad p(y_t) = \mathrm{softmax}(V d_t + c) $$

with a zero vector for y_0. Embedding E and output layer V are shared. A run lowers the mean
cross-entropy of a word of both neighbours, the end of a sentence included. As in the public code h
enters a decoder as its first state only; `every_step` adds it to the input of every step, as the
paper of 2015 says.

Method `layer` normalizes all three GRUs, as the paper's code does (lngru for encoder and decoders).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from layernorm.lab.data.sentence_tasks import Classes, Pairs
from layernorm.lab.data.sentences import Sentence
from layernorm.lab.experiments.skip_thoughts import probes
from layernorm.lab.experiments.skip_thoughts.data import (
    END,
    Batch,
    SameLength,
    Text,
    Vocabulary,
    text,
)
from layernorm.recurrent import LayerNormGRU

METHODS = ("none", "layer")
RANGE = 0.1  # weights start evenly between -0.1 and 0.1, as in the code
ROUNDS = 20  # of scaling a recurrent matrix whose states depend on it
CHUNK = 256  # sentences encoded at once
READ = 64  # triples whose neighbours are predicted at once when they are not trained on


def gru(options, inputs: int) -> nn.Module:
    """A GRU of the method; all methods start from the same weights: input weights even in a range,
    each gate's recurrent matrix orthogonal, biases 0."""
    kind = nn.GRU if options.method == "none" else LayerNormGRU
    with torch.random.fork_rng(devices=[]):  # what the layer draws for itself is not used
        layer = kind(inputs, options.hidden)
    nn.init.uniform_(layer.weight_ih_l0, -RANGE, RANGE)
    for gate in layer.weight_hh_l0.detach().chunk(3):
        nn.init.orthogonal_(gate)
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
    return layer


class SkipThoughts(nn.Module):
    """The equations of this module's first lines."""

    def __init__(self, options) -> None:
        super().__init__()
        inputs = options.embedding
        self.every_step = options.every_step
        self.embedding = nn.Embedding(options.vocabulary, inputs)
        self.encoder = gru(options, inputs)
        given = inputs + (options.hidden if self.every_step else 0)
        self.after, self.before = gru(options, given), gru(options, given)
        self.output = nn.Linear(options.hidden, options.vocabulary)
        nn.init.uniform_(self.embedding.weight, -options.embedding_range, options.embedding_range)
        nn.init.uniform_(self.output.weight, -RANGE, RANGE)
        nn.init.zeros_(self.output.bias)

    def encode(self, sentence: Int[Tensor, "n t"]) -> Float[Tensor, "n h"]:
        """The thoughts of sentences of one length."""
        return self.encoder(self.embedding(sentence.T))[1][0]

    def inputs(
        self, thought: Float[Tensor, "n h"], words: Int[Tensor, "n t"]
    ) -> Float[Tensor, "t n i"]:
        """A decoder's inputs: at each step the word before, at the first one zeros."""
        x = self.embedding(words.T)
        x = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
        return torch.cat([x, thought.expand(len(x), -1, -1)], -1) if self.every_step else x

    def decode(
        self, decoder: nn.Module, thought: Float[Tensor, "n h"], words: Int[Tensor, "n t"]
    ) -> Float[Tensor, "n t h"]:
        """The decoder's states, from which the output layer predicts the words."""
        return decoder(self.inputs(thought, words), thought[None])[0].transpose(0, 1)

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "words v"], Int[Tensor, " words"]]:
        """The logits of all words of both neighbours, padding left out, and the words."""
        thought = self.encode(batch.sentence)
        after = self.decode(self.after, thought, batch.after)[batch.after_mask]
        before = self.decode(self.before, thought, batch.before)[batch.before_mask]
        said = batch.after[batch.after_mask], batch.before[batch.before_mask]
        return self.output(torch.cat([after, before])), torch.cat(said)

    @torch.no_grad()
    def continued(self, sentence: Int[Tensor, " t"], longest: int = 20) -> list[int]:
        """The sentence after, one most likely word after another (greedy)."""
        thought = self.encode(sentence[None])
        said: list[int] = []
        while len(said) < longest and END not in said:
            words = torch.tensor([[*said, END]])  # the last input is the word before
            logits = self.output(self.decode(self.after, thought, words)[0, -1])
            said.append(int(logits.argmax()))
        return said


@torch.no_grad()
def rescale_(model: SkipThoughts, batch: Batch) -> None:
    """Scale the weights so that each term of every summed input starts with unit variance.

    The control arm `rescaled`: in the order in which they act, both terms of the encoder, of either
    decoder, and the logits, each by one factor, over the sentences of one batch; biases start at 0.
    """
    x = model.embedding(batch.sentence.T)
    unit_gru_(model.encoder, x, torch.zeros(x.shape[1], model.output.in_features))
    thought = model.encode(batch.sentence)
    states = []
    for decoder, words, mask in (
        (model.after, batch.after, batch.after_mask),
        (model.before, batch.before, batch.before_mask),
    ):
        unit_gru_(decoder, model.inputs(thought, words), thought, mask.T)
        states.append(model.decode(decoder, thought, words)[mask])
    model.output.weight /= model.output(torch.cat(states)).std()


def unit_gru_(
    layer: nn.GRU,
    x: Float[Tensor, "t n i"],
    h: Float[Tensor, "n h"],
    mask: Bool[Tensor, "t n"] | None = None,
) -> None:
    """Scale both matrices of a GRU so that W_x x and W_h h have unit variance where words are; the
    states depend on the recurrent one, so that is done again and again.

    Raises `RuntimeError` where it does not settle within 1 %.
    """
    here = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask

    def recurrent() -> float:
        states = torch.cat([h[None], layer(x, h[None])[0][:-1]])
        return float((states[here] @ layer.weight_hh_l0.T).std())

    layer.weight_ih_l0 /= (x[here] @ layer.weight_ih_l0.T).std()
    for _ in range(ROUNDS):
        layer.weight_hh_l0 /= recurrent()
    if abs(left := recurrent() - 1) > 0.01:
        raise RuntimeError(
            f"the recurrent term's standard deviation is {1 + left:.3f} after {ROUNDS} rounds of "
            "scaling, not 1; use more rounds"
        )


@torch.no_grad()
def vectors(
    model: SkipThoughts, known: Vocabulary, said: list[Sentence], end: bool = False
) -> Float[np.ndarray, "n h"]:
    """The vectors of sentences, scaled to length 1; sentences of one length are read together.

    `end`: the encoder reads the end of the sentence, too, as it does in training. As in the code it
    does for SICK and does not for the tasks with two classes. An empty sentence is its end.
    """
    numbers = [known.encoded(sentence, end or not sentence) for sentence in said]
    order = sorted(range(len(numbers)), key=lambda i: len(numbers[i]))
    found = torch.empty(len(said), model.output.in_features)
    device = model.output.weight.device
    start = 0
    while start < len(order):
        length = len(numbers[order[start]])
        rows = [i for i in order[start : start + CHUNK] if len(numbers[i]) == length]
        read = model.encode(torch.tensor([numbers[i] for i in rows], device=device))
        found[rows] = normalize(read).float().cpu()
        start += len(rows)
    return found.numpy()


def counted(known: Vocabulary, said: list[Sentence]) -> Float[np.ndarray, "n v"]:
    """Bags of words: how often each known word occurs, scaled to length 1."""
    bags = np.zeros((len(said), len(known.words) + 2), dtype=np.float32)
    for row, sentence in zip(bags, said, strict=True):
        np.add.at(row, known.encoded(sentence), 1)
    return bags / np.linalg.norm(bags, axis=1, keepdims=True)


class Reading:
    """The task of a run: predict both neighbours of a sentence."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        self.options, self.device = options, device
        self.text = read(options)
        self.parts = {part: self.text.parts[part] for part in ("validation", "test")}
        train = self.text.parts["train"]
        if options.examples is not None:
            train = self.parts["train"] = train.few(options.examples)
        self.guess = unigram_nll(self.text, options.vocabulary)
        self.train, self.shuffled = train, SameLength(train.lengths, options.batch_size, seed)
        model = SkipThoughts(options)
        if options.rescaled:
            rescale_(model, self.batch(1))
        self.model = model.to(device)

    def batch(self, step: int) -> Batch:
        return self.train[self.shuffled(step)]

    def loss(self, step: int) -> Tensor:
        """Nats a word; `summed`: of all words, as in the code, where it meets the clipping."""
        logits, said = self.model(self.batch(step).to(self.device))
        return cross_entropy(logits, said, reduction="sum" if self.options.summed else "mean")

    def evaluate(self) -> dict[str, float]:
        """`…_nll` in nats a word and `…_error` in percent of words, of validation and test;
        `test_above_frequencies`, nats above those of words' frequencies; and of the tasks with a
        fixed penalty `test_NAME`, an error in percent or 100 (1 - r), and their mean,
        `test_tasks`."""
        found = {}
        for name, triples in self.parts.items():
            found[f"{name}_nll"], found[f"{name}_error"] = predicted(
                self.model, triples, self.device
            )
        found["test_above_frequencies"] = found["test_nll"] - self.guess
        judged = {}
        for task in self.text.tasks:
            judged |= self.quick(task, self.encoded)
        tasks = [judged[f"test_{task.name}"] for task in self.text.tasks]
        return {**found, **judged, "test_tasks": float(np.mean(tasks))}

    def encoded(self, said: list[Sentence], end: bool) -> Float[np.ndarray, "n h"]:
        return vectors(self.model, self.words, said, end)

    def bags(self, said: list[Sentence], end: bool) -> Float[np.ndarray, "n v"]:
        return counted(self.words, said)

    @property
    def words(self) -> Vocabulary:
        return self.text.vocabulary

    def quick(self, task: Classes | Pairs, encode) -> dict[str, float]:
        """A task with the fixed penalty, on those of its cases that curves are made from."""
        train, test = probes.shown(task)
        half = len(train)
        if isinstance(task, Classes):
            x, y = encode([task.sentences[i] for i in (*train, *test)], False), task.labels
            return {f"test_{task.name}": probes.error(x[:half], y[train], x[half:], y[test])}
        x, y = self.features(task, np.r_[train, test], encode), task.scores
        found = probes.quick_relatedness(x[:half], y[train], x[half:], y[test])
        named = {f"test_{task.name}_{name}": value for name, value in found.items()}
        return {f"test_{task.name}": 100 * (1 - found["r"]), **named}

    def features(
        self, task: Pairs, rows: Int[np.ndarray, " n"], encode
    ) -> Float[np.ndarray, "n d"]:
        """The features of a task's pairs in these rows."""
        u, v = (encode([said[i] for i in rows], True) for said in (task.first, task.second))
        return probes.pair_features(u, v)

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        """Bags of words with the fixed penalty, `words_NAME`; and, in a run of at least
        `nested_from` updates, the tasks as in the original, `NAME_error`, or `NAME_r`, `…_rho` and
        `…_mse`, and the mean of errors and 100 (1 - r), `tasks`."""
        self.model.eval()
        found: dict[str, float] = {}
        for task in self.text.tasks:
            quick = self.quick(task, self.bags)
            found |= {f"words_{k.removeprefix('test_')}": v for k, v in quick.items()}
        if self.options.updates < self.options.nested_from:
            return found
        losses = []
        for task in self.text.tasks:
            if isinstance(task, Classes):
                x = self.encoded(list(task.sentences), False)
                losses.append(probes.nested_error(x, task.labels))
                found[f"{task.name}_error"] = losses[-1]
                continue
            x = self.features(task, np.arange(len(task.scores)), self.encoded)
            measured = probes.relatedness(task, x)
            found |= {f"{task.name}_{name}": value for name, value in measured.items()}
            losses.append(100 * (1 - measured["r"]))
        return {**found, "tasks": float(np.mean(losses))}


def predicted(model: SkipThoughts, triples, device: torch.device) -> tuple[float, float]:
    """The mean cross-entropy of a word of the neighbours, and the percentage that the most likely
    word misses."""
    nll = wrong = count = 0.0
    for length in np.unique(triples.lengths):
        group = np.flatnonzero(triples.lengths == length).tolist()
        for i in range(0, len(group), READ):
            logits, said = model(triples[group[i : i + READ]].to(device))
            nll += float(cross_entropy(logits.double(), said, reduction="sum"))
            wrong += float((logits.argmax(1) != said).sum())
            count += len(said)
    return nll / count, 100 * wrong / count


def read(options) -> Text:
    """The text and tasks of some options."""
    return text(options.text, options.vocabulary, options.longest, options.held_out)


def unigram_nll(told: Text, vocabulary: int) -> float:
    """Nats a word of the test neighbours for whoever knows the words' frequencies alone."""
    counts = np.ones(vocabulary)  # each word once more than it occurs
    for document in told.parts["train"].encoded:
        for sentence in document:
            np.add.at(counts, sentence, 1)
    surprise, test = -np.log(counts / counts.sum()), told.parts["test"]
    said = [n for d, i in test.places for at in (i - 1, i + 1) for n in test.encoded[d][at]]
    return float(surprise[said].mean())
