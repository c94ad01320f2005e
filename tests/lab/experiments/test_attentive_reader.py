"""The attentive reader's runs: scores worked out by hand, stories by seed and update alone, every
kind of arm learns a handful by heart, and a plan that holds."""

import math
import re

import pytest
import torch
from lab.experiments.small_reader import CPU, EXPERIMENT, SMALL, WORLD, made, options, stories
from torch import nn

from layernorm.lab.data.cloze import FIRST, Stories, permuted
from layernorm.lab.experiments.attentive_reader import model as task
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.run import Trainer


class Oracle(nn.Module):
    """Answers with the n-th marker of the passage, or with a certain one."""

    def __init__(self, place=0, word=None):
        super().__init__()
        self.place, self.word = place, word

    def forward(self, told):
        logits = torch.zeros(len(told), WORLD.vocabulary)
        for case, passage in enumerate(told.passages.tolist()):
            markers = [word for word in passage if FIRST <= word < FIRST + 10]
            word = self.word or (markers[self.place] if markers else 0)
            logits[case, word] = 3.0
        return logits


def test_a_reader_of_markers_moves_with_them_and_one_of_a_single_word_does_not():
    run = made(held_out=400)
    run.model = Oracle()
    assert run.final() == {"moved_with_markers": 100.0}
    run.model = Oracle(word=FIRST + 2)
    moved = run.final()["moved_with_markers"]
    told = run.parts["test"]
    told = Stories(**{**vars(told), "answers": torch.full_like(told.answers, FIRST + 2)})
    stays = permuted(told, 10, generator(task.PERMUTED)).answers == FIRST + 2
    assert moved == pytest.approx(100 * stays.double().mean().item())
    assert 5 < moved < 15


def test_errors_and_losses_by_hand():
    """Three of four answers are right; the right word has the logit 3 there and 0 else."""
    run = made()
    told = stories(4)
    first = Oracle()(told).argmax(1)
    answers = first.clone()
    answers[2] = FIRST + (first[2] - FIRST + 1) % 10
    run.parts = {"validation": Stories(**{**vars(told), "answers": answers})}
    run.model = Oracle()
    others = WORLD.vocabulary - 1
    right, wrong = (math.log(math.exp(3) + others) - logit for logit in (3, 0))
    got = run.evaluate()
    assert got["validation_error"] == 25.0
    assert got["validation_nll"] == pytest.approx((3 * right + wrong) / 4, rel=1e-6)


def test_stories_are_read_in_pieces_as_in_one(monkeypatch):
    run = made("layer", held_out=50)
    run.model.eval()
    whole = task.answered(run.model, run.parts["test"])
    monkeypatch.setattr(task, "CHUNK", 20)
    torch.testing.assert_close(task.answered(run.model, run.parts["test"]), whole)


@pytest.mark.parametrize("arm", ["none", "rescaled", "layer", "batch"])
def test_every_kind_of_arm_learns_a_handful_by_heart(arm):
    changes = {"examples": 8, "batch_size": 8, "updates": 120, "min_samples": 2, "hidden": 24}
    config = EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes, "learning_rate": 0.02})
    with seeded(0, CPU):
        trainer = Trainer(EXPERIMENT, config, CPU)
        before = trainer.evaluate()
        for step in range(1, 121):
            trainer.update(step)
            if trainer.kept == len(trainer.losses):
                trainer.look()
        after = trainer.evaluate()
    assert before["train_error"] > 50
    assert after["train_error"] == 0
    assert after["train_nll"] < 0.1
    assert after["validation_error"] > 50  # eight stories teach no reading


def test_a_batch_depends_on_seed_and_update_alone():
    run, again = made(), made()
    assert run.batch(7).sha256() == again.batch(7).sha256()
    run.batch(3)
    assert run.batch(7).sha256() == again.batch(7).sha256()
    other = task.AttentiveReader(options("none"), 1, CPU)
    hashes = {run.batch(step).sha256() for step in range(1, 6)} | {other.batch(1).sha256()}
    assert len(hashes) == 6
    assert run.parts["test"].sha256() == other.parts["test"].sha256()
    assert run.parts["test"].sha256() != run.parts["validation"].sha256()


def test_examples_are_a_fixed_set():
    run = made(examples=16, batch_size=8)
    train = {tuple(words) for words in run.parts["train"].passages.tolist()}
    for step in (1, 2, 3):
        assert {tuple(words) for words in run.batch(step).passages.tolist()} <= train
    two = {tuple(words) for step in (1, 2) for words in run.batch(step).passages.tolist()}
    assert two == train


@pytest.mark.parametrize(
    ("arm", "change", "message"),
    [
        ("none", {"method": "rms"}, "method must be one of none, layer, batch, got 'rms'"),
        ("none", {"gain": 0.1}, "gain 0.1 is where norms start, and method 'none' has none"),
        ("layer", {"everywhere": True}, "everywhere is for method 'batch', got method 'layer'"),
        ("layer", {"statistics": "sequence"}, "statistics is for method 'batch', got method 'laye"),
        ("batch", {"batch_size": 4}, "batch_size must be at least min_samples (8), got 4"),
        ("none", {"sentences": 20}, "entities must be at least 21, a sentence can name"),
        ("none", {"coreference": 1.0}, "coreference: the value should be less than 1"),
        ("none", {"dropout": 1.0}, "dropout: the value should be less than 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(arm, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        EXPERIMENT.config("book", arm, 0, **change)


def test_the_plan_is_complete():
    standard, book = EXPERIMENT.profile("standard"), EXPERIMENT.profile("book")
    assert set(standard.arms) == set(EXPERIMENT.arms)
    assert max(standard.seeds) < 900  # the pilots' seeds
    assert {"none", "rescaled", "layer", "batch"} == set(book.arms)
    assert not EXPERIMENT.rate_of
    for row in EXPERIMENT.comparisons.rows:
        assert set(row.arms) <= set(standard.arms)


def test_the_papers_profile_has_the_papers_sizes():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    assert (paper.hidden, paper.batch_size, paper.clip) == (240, 64, 10.0)
    assert (paper.learning_rate, paper.dropout) == (8e-5, 0.5)
    assert paper.learn_initial_state
    assert paper.world().vocabulary == 65829
    assert paper.sentences == 4


def test_the_papers_profile_starts_and_trains():
    config = EXPERIMENT.config("paper", "layer", 0, updates=2, evaluations=1, held_out=8)
    with seeded(0, CPU):
        trainer = Trainer(EXPERIMENT, config, CPU)
        trainer.update(1)
        trainer.update(2)
        assert all(math.isfinite(loss) for loss in trainer.look())
        assert 0 <= trainer.evaluate()["validation_error"] <= 100


def test_the_data_hash_tells_worlds_apart():
    base = options("none")
    assert EXPERIMENT.data(base) == EXPERIMENT.data(options("layer"))
    assert EXPERIMENT.data(base) != EXPERIMENT.data(options("none", entities=12))
    assert EXPERIMENT.data(base) != EXPERIMENT.data(options("none", held_out=41))
