"""What a run of `attentive_reader` trains: stories, the reader, and what is measured of it."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.data.cloze import Stories, World, draw, permuted
from layernorm.lab.experiments.attentive_reader_model import Reader, rescale_
from layernorm.lab.experiments.batches import Shuffled, generator

VALIDATION, TEST, PERMUTED = 1, 2, 3  # seeds of what all runs share; one number, so not a batch's
CHUNK = 500  # stories read at once when they are not trained on
SCALED_ON = 256  # stories over which the control's summed inputs get unit variance


@cache
def held_out(world: World, cases: int) -> dict[str, Stories]:
    """The stories of validation and test: the same ones for every arm and seed."""
    parts = {"validation": VALIDATION, "test": TEST}
    return {name: draw(world, cases, generator(seed)) for name, seed in parts.items()}


class AttentiveReader:
    """The task: name who the question asks about. Every update sees fresh stories, or, with
    `examples`, those of a fixed set."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        self.world, self.seed, self.device = options.world(), seed, device
        self.batch_size = options.batch_size
        held = held_out(self.world, options.held_out)
        self.parts = {name: stories.to(device) for name, stories in held.items()}
        self.few = None
        if options.examples is not None:
            self.few = draw(self.world, options.examples, generator(seed, 0))
            self.shuffled = Shuffled(options.examples, options.batch_size, seed)
            self.parts["train"] = self.few.to(device)
        model = Reader(options, self.world.vocabulary, self.world.longest)
        if options.rescaled:
            rescale_(model, draw(self.world, SCALED_ON, generator(seed, 0)))
        self.model = model.to(device)

    def batch(self, step: int) -> Stories:
        if self.few is not None:
            return self.few[self.shuffled(step)].to(self.device)
        return draw(self.world, self.batch_size, generator(self.seed, step)).to(self.device)

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
        again = permuted(stories, self.world.entities, generator(PERMUTED))
        before, after = (answered(self.model, part)[1] for part in (stories, again))
        expected = permuted(
            Stories(**{**vars(stories), "answers": before}),
            self.world.entities,
            generator(PERMUTED),
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
