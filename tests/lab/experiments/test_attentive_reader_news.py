"""The attentive reader on questions in the form of CNN's: a few hundred are written here."""

import math

import pytest
import torch

from layernorm.lab import records
from layernorm.lab.data.cloze import FIRST, World, draw, said
from layernorm.lab.experiments import get
from layernorm.lab.experiments.attentive_reader import model as task
from layernorm.lab.experiments.attentive_reader.plan import trivial_error
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.run import Trainer

CPU = torch.device("cpu")
EXPERIMENT = get("attentive_reader")
SMALL = {"hidden": 12, "embedding": 7, "batch_size": 16, "updates": 20}
ENTITIES, SENTENCES = 12, 4
COUNTS = {"training": 300, "validation": 50, "test": 40}


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    """A folder with a few hundred questions."""
    root = tmp_path_factory.mktemp("data")
    world = World(entities=ENTITIES, sentences=5, coreference=0.0)
    names = "\n".join(f"@entity{i}:Name {i}" for i in range(ENTITIES))
    for seed, (part, count) in enumerate(COUNTS.items()):
        folder = root / "cnn" / "questions" / part
        folder.mkdir(parents=True)
        told = draw(world, count, generator(seed, 77))
        for i in range(count):
            texts = (said(world, words[i]) for words in (told.passages, told.questions))
            answer = said(world, told.answers[i : i + 1])
            parts = ("http://news.example/1", *texts, answer, names)
            (folder / f"{i:040x}.question").write_text("\n\n".join(parts) + "\n")
    return root


def read_cnn(cnn, monkeypatch, arm="layer", **changes):
    monkeypatch.setenv("LAYERNORM_DATA", str(cnn))
    values = {**SMALL, "data": "cnn", "sentences": SENTENCES, "held_out": 30, **changes}
    return EXPERIMENT.config("book", arm, 0, **values).options


def test_the_reader_learns_from_questions_in_the_form_of_cnns(cnn, monkeypatch):
    chosen = read_cnn(cnn, monkeypatch, learning_rate=0.02, updates=60)
    config = EXPERIMENT.config("book", "layer", 3, **chosen.model_dump())
    with seeded(0, CPU):
        trainer = Trainer(EXPERIMENT, config, CPU)
        start = trainer.evaluate()
        for step in range(1, 61):
            trainer.update(step)
        found = trainer.evaluate()
        assert 0 <= trainer.task.final()["moved_with_markers"] <= 100
    assert start["validation_nll"] > math.log(30)  # of 36 words
    assert found["validation_nll"] < math.log(15)  # it knows that one of 12 markers answers


def test_questions_are_cut_counted_and_held_out(cnn, monkeypatch):
    told = task.source(read_cnn(cnn, monkeypatch))
    assert {part: len(stories) for part, stories in told.parts.items()} == COUNTS
    assert told.entities == ENTITIES
    words = (told.vocabulary - FIRST - ENTITIES, len(World().words()) - FIRST - 10 + 1)
    assert words[0] == words[1]  # those of the stories, and the full stop, which is a word here
    assert told.longest <= SENTENCES * 5
    held = told.held_out(30)
    assert [len(held[part]) for part in ("validation", "test")] == [30, 30]
    kept = (held["test"].passages == held["test"].answers[:, None]).any(1)
    assert kept.all()  # the sentence that answers shares two words with the question
    assert 0 < trivial_error(read_cnn(cnn, monkeypatch).model_dump()) < 100
    assert EXPERIMENT.data(read_cnn(cnn, monkeypatch)) == held["test"].sha256()


def test_markers_are_permuted_in_training_alone(cnn, monkeypatch):
    chosen = read_cnn(cnn, monkeypatch)
    with seeded(0, CPU):
        run = task.AttentiveReader(chosen, 0, CPU)
    told = task.source(chosen)
    plain = told._cut(told.fresh(chosen.batch_size, 0).shuffled(1))
    batch = run.batch(1)
    assert torch.equal(batch.lengths, plain.lengths)
    assert not torch.equal(batch.answers, plain.answers)
    marker = (plain.passages >= FIRST) & (plain.passages < FIRST + ENTITIES)
    assert torch.equal(batch.passages[~marker], plain.passages[~marker])
    again, other = run.batch(1), run.batch(2)
    assert torch.equal(batch.answers, again.answers)
    assert not torch.equal(batch.answers, other.answers)
    assert torch.equal(run.parts["validation"].answers, told.parts["validation"].answers[:30])


def test_every_arm_starts_on_questions(cnn, monkeypatch):
    for arm in EXPERIMENT.arms:
        with seeded(0, CPU):
            run = task.AttentiveReader(read_cnn(cnn, monkeypatch, arm), 0, CPU)
            assert math.isfinite(run.loss(1).item())


def test_without_the_questions_it_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(
        OSError, match=r"data=cnn: expected .* make them with github.com/deepmind/rc"
    ):
        task.source(read_cnn(tmp_path, monkeypatch))
    for part in COUNTS:
        (tmp_path / "cnn" / "questions" / part).mkdir(parents=True)
    with pytest.raises(OSError, match=r"training holds no .question file"):
        task.source(read_cnn(tmp_path, monkeypatch))


def test_runs_on_stories_keep_the_names_they_had_before_there_were_questions(cnn, monkeypatch):
    assert "data" not in EXPERIMENT.config("book", "layer", 0).options.model_dump()
    assert read_cnn(cnn, monkeypatch).model_dump()["data"] == "cnn"
    with records.published_only():
        runs = records.runs("attentive_reader", "book_tuning")
    keys = {run.key for run in runs}
    again = EXPERIMENT.config("book", "none", 1000, learning_rate=0.002).in_profile("book_tuning")
    assert records.key({**again.plain(), "data": runs[0].config["data"]}) in keys
