"""Order-embeddings: equations computed by hand, padding without any effect, where arms start,
Recall@K and ranks worked out by hand, ties included, and what a run is made of."""

import math
import re

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from layernorm.lab import records
from layernorm.lab.data import captions, scenes
from layernorm.lab.experiments import get
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.order_embeddings import data, level, model, ranking
from layernorm.lab.experiments.run import Trainer, train
from layernorm.recurrent import LayerNormGRU

CPU = torch.device("cpu")
EXPERIMENT = get("order_embeddings")
SMALL = {"hidden": 12, "embedding": 7, "units": 6, "scenes": 40, "held_out": 12, "batch_size": 8}
SMALL |= {"updates": 4, "evaluations": 2}


def options(arm="none", **changes):
    return EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options


def made(arm="none", seed=0, **changes):
    with seeded(0, CPU):
        return model.OrderEmbeddings(options(arm, **changes), seed, CPU)


# Energies and ranks


def test_order_violation_by_hand():
    s = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    v = torch.tensor([[0.5, 3.0, 0.0], [0.0, 0.0, 3.0]])
    expected = [[0.25, 5.0], [1.0, 0.0]]  # (1 - 0.5)²; 1² + 2²; 1²; nothing asked that is not there
    assert ranking.order_violation(s, v).tolist() == expected
    assert ranking.many_violations(s, v).tolist() == expected


def test_many_violations_are_the_same_in_blocks(monkeypatch):
    monkeypatch.setattr(ranking, "BLOCK", 3)
    s, v = torch.randn(7, 5).double(), torch.randn(4, 5).double()
    torch.testing.assert_close(ranking.many_violations(s, v), ranking.order_violation(s, v))


def test_an_order_is_reflexive_antisymmetric_and_transitive():
    """Zero violation is the order of all coordinates: where a ≤ b ≤ c, a violates nothing of c."""
    a = torch.rand(20, 6)
    b, c = a + torch.rand(20, 6), a + 1.0 + torch.rand(20, 6)
    for low, high in ((a, a), (a, b), (b, c.maximum(b)), (a, c.maximum(b))):
        assert (ranking.order_violation(low, high).diagonal() == 0).all()
    assert (ranking.order_violation(b, a).diagonal() > 0).all()


def energies(right, wrong=1.0):
    """Three images; the energies of own captions are given, all others are the same."""
    energy = torch.full((15, 3), wrong)
    for caption, value in right.items():
        energy[caption, caption // 5] = value
    return energy


def test_ranks_by_hand():
    """Image 0 has its third caption best; image 1 none that is better than ten others, image 2 is
    better than them with one."""
    right = dict.fromkeys(range(15), 2.0) | {2: 0.5, 14: 0.0}
    of_images, of_captions = ranking.ranks(energies(right))
    assert of_images.tolist() == [0, 10, 0]
    assert of_captions.tolist() == [2, 2, 0, 2, 2, *[2] * 5, *[2] * 4, 0]


def test_an_images_other_captions_are_no_wrong_candidates():
    right = {i: 0.9 - 0.1 * (i % 5) for i in range(15)}
    assert ranking.ranks(energies(right))[0].tolist() == [0, 0, 0]


def test_ties_count_against():
    """All energies alike: every wrong candidate comes first."""
    of_images, of_captions = ranking.ranks(torch.zeros(15, 3))
    assert of_images.tolist() == [10, 10, 10]
    assert of_captions.tolist() == [2] * 15
    found = ranking.scores(torch.zeros(15, 3))
    assert found["caption_r10"] == 0.0  # not 100, as with ties broken by place
    assert (found["caption_rank"], found["image_rank"]) == (11.0, 3.0)


def test_what_is_not_a_number_fits_nothing():
    energy = energies(dict.fromkeys(range(15), math.nan))
    assert ranking.ranks(energy)[1].tolist() == [2] * 15


def test_scores_by_hand():
    """Of 15 captions 9 find their image first, 6 as the third and last; of three images one has a
    caption first, one at rank 1 and one at rank 6."""
    energy = energies({i: 0.0 if i < 9 else 2.0 for i in range(15)})
    ranks = torch.tensor([0, 1, 6])
    assert ranking.recall(ranks, 1) == pytest.approx(100 / 3)
    assert ranking.recall(ranks, 5) == pytest.approx(200 / 3)
    assert ranking.recall(ranks, 7) == 100.0
    found = ranking.scores(energy)
    assert found["image_r1"] == 60.0
    assert found["image_r5"] == found["image_r10"] == 100.0
    assert found["image_rank"] == pytest.approx((9 * 1 + 6 * 3) / 15)
    assert (
        found["caption_r1"] == found["caption_r5"] == found["caption_r10"] == pytest.approx(200 / 3)
    )
    assert found["caption_rank"] == pytest.approx((1 + 1 + 11) / 3)
    assert found["missed"] == pytest.approx(100 - (60 + 100 + 100 + 200) / 6)


def test_ranks_against_sorting():
    energy = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    of_images, of_captions = ranking.ranks(energy)
    for caption, row in enumerate(energy.argsort(1).tolist()):
        assert row.index(caption // 5) == of_captions[caption]
    for image, column in enumerate(energy.T.argsort(1).tolist()):
        first = next(i for i, caption in enumerate(column) if caption // 5 == image)
        assert first == of_images[image]


# Model and loss


@pytest.mark.parametrize("arm", ["none", "layer", "none/symmetric"])
def test_the_equations(arm):
    task = made(arm)
    net, part = task.model.double(), task.data.validation
    words, lengths = part.told(torch.arange(10))
    s = net.captions(words, lengths)
    f = part.features(slice(0, 2)).double()
    v = net.images(f)
    for i in range(10):
        h = net.gru(net.words(words[i, : lengths[i]]))[0][-1]
        expected = h / h.square().sum().sqrt()
        torch.testing.assert_close(s[i], expected if "sym" in arm else expected.abs())
    wf = f @ net.image.weight.T
    expected = wf / wf.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(v, expected if "sym" in arm else expected.abs())
    energy = net.energy(s, v)
    by_hand = -s @ v.T if "sym" in arm else (s[:, None] - v).clamp(min=0).square().sum(2)
    torch.testing.assert_close(energy, by_hand)
    torch.testing.assert_close(net.energy(s, v, many=True), by_hand)


def test_the_loss_by_hand():
    """m = 0.5. Caption 0 with image 1: 0.5 + 0.1 - 0.4; image 0 with caption 1: 0.5 + 0.1 - 0.9 is
    below 0; caption 1 with image 0: 0.5 + 0.2 - 0.9 too; image 1 with caption 0: 0.5 + 0.2 - 0.4.
    """
    energy = torch.tensor([[0.1, 0.4], [0.9, 0.2]], requires_grad=True)
    loss = model.pair_loss(energy, 0.5)
    assert loss.item() == pytest.approx(0.2 + 0.3)
    loss.backward()
    assert energy.grad.tolist() == [[1.0, -2.0], [0.0, 1.0]]


def test_the_loss_of_unrelated_embeddings_is_the_margin_for_each_wrong_pair():
    r"""Of half-normal coordinates a, b the mean of max(0, a - b)² is half that of (a - b)², so
    1 - 2/π. Its variance is at most half the mean of (a - b)⁴, (12 - 32/π)/2 = 0.91; with what the
    lengths add, a deviation below 1.2/sqrt(D) of E. So all energies are alike, and the 2 n (n - 1)
    terms of the loss have the mean m, but for what the n right energies leave to chance."""
    n, d, m = 40, 10_000, 0.05
    made = torch.Generator().manual_seed(0)
    s, v = (normalize(torch.randn(n, d, generator=made).abs(), dim=1) for _ in range(2))
    energy = ranking.order_violation(s, v)
    deviation = 1.2 / math.sqrt(d)
    assert (energy - (1 - 2 / math.pi)).abs().max() < 6 * deviation
    assert abs(model.pair_loss(energy, m).item() / (2 * n * (n - 1)) - m) < 2 * deviation


@pytest.mark.parametrize("arm", ["none", "layer", "rescaled"])
def test_an_untrained_model_has_at_least_the_loss_of_unrelated_pairs(arm):
    """The hinge is convex, so the mean of its terms is at least the hinge of their mean: the margin
    plus the right pairs' energy less the wrong ones', which before training differ by what
    sixty-four pairs leave to chance."""
    task = made(arm, scenes=200, batch_size=64, hidden=64)
    images, rows = task.batch(1)
    s = task.model.captions(*task.train.told(rows))
    energy = task.model.energy(s, task.model.images(task.train.features(images)))
    n, m = len(energy), task.margin
    wrong = energy.masked_select(~torch.eye(n, dtype=torch.bool))
    right = energy.diagonal()
    loss = task.loss(1).item() / (2 * n * (n - 1))
    assert loss >= m + (right.mean() - wrong.mean()).item() - 1e-6
    assert abs(right.mean() - wrong.mean()) < 5 * wrong.std() / math.sqrt(n)
    assert loss < m + right.std().item() + wrong.std().item() + abs(right.mean() - wrong.mean())


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_padding_changes_nothing_and_learns_nothing(arm):
    task = made(arm)
    words, lengths = task.data.validation.told(torch.arange(20))
    assert (words == captions.PAD).any()
    other = words.masked_fill(words == captions.PAD, 5)
    s, again = task.model.captions(words, lengths), task.model.captions(other, lengths)
    assert torch.equal(s, again)
    s[:, 0].sum().backward()
    assert (task.model.words.weight.grad[captions.PAD] == 0).all()


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_captions_read_in_sorted_chunks_are_the_captions_in_their_order(arm, monkeypatch):
    monkeypatch.setattr(model, "CHUNK", 7)
    task = made(arm)
    part = task.data.validation
    s = task.model.captions(part.words, part.lengths)
    torch.testing.assert_close(task.embedded(part), s.detach())


def test_all_arms_of_a_seed_start_from_the_same_weights():
    base = dict(made("none").model.named_parameters())
    for arm in ("layer", "none/symmetric"):
        there = dict(made(arm).model.named_parameters())
        shared = base.keys() & there.keys()
        assert {"words.weight", "image.weight", "gru.weight_ih_l0", "gru.weight_hh_l0"} <= shared
        for name in shared:
            assert torch.equal(base[name], there[name]), (arm, name)
    layer = made("layer").model.gru
    assert type(layer) is LayerNormGRU
    assert type(made("none").model.gru) is nn.GRU
    for term in ("ih", "hh"):
        assert (getattr(layer, f"ln_{term}_weight_l0") == 1).all()
    assert (layer.bias_ih_l0 == 0).all()


def test_words_and_weights_start_as_in_the_code_of_the_paper():
    net = made("none", hidden=64, embedding=32).model
    for weight in (net.words.weight, net.gru.weight_ih_l0):
        assert weight.abs().max() <= 0.1
        assert weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    for gate in net.gru.weight_hh_l0.chunk(3):
        torch.testing.assert_close(gate @ gate.T, torch.eye(64), atol=1e-5, rtol=0)
    for bias in (net.gru.bias_ih_l0, net.gru.bias_hh_l0):
        assert (bias == 0).all()


def test_the_control_starts_with_unit_variance():
    task = made("rescaled", hidden=64, embedding=32)
    net, part = task.model, task.train
    words, lengths = part.told(captions.EACH * torch.arange(len(part)))
    x = net.words(words[:, : int(lengths.min())].T)
    assert net.words.weight.std().item() == pytest.approx(1, rel=1e-3)
    assert (x @ net.gru.weight_ih_l0.T).std().item() == pytest.approx(1, rel=1e-3)
    assert (net.gru(x)[0] @ net.gru.weight_hh_l0.T).std().item() == pytest.approx(1, rel=0.02)
    plain = made("none", hidden=64, embedding=32).model
    assert torch.equal(net.image.weight, plain.image.weight)
    assert not torch.allclose(net.gru.weight_hh_l0, plain.gru.weight_hh_l0)


# Data of a run


def test_features_are_units_of_the_places_and_nothing_else():
    made_data = made().data
    part, told = made_data.validation, made_data.scenes["validation"]
    f = part.features()
    assert f.shape == (12, 4 * 6)
    torch.testing.assert_close(f.norm(dim=1), torch.ones(12))
    blocks = f.unflatten(1, (4, 6))
    empty = told.images == scenes.EMPTY
    assert empty.any()
    assert ((blocks == 0).all(2) == empty).all()
    splits = data.DATASETS["digits"].load()
    x = (splits.validation.x - splits.train.x.mean(0)).flatten(1)
    matrix = torch.randn(64, 6, generator=data.generator(0, 64, 6)) / 8
    units = (x @ matrix).relu()
    scene = told.images[0]
    raw = torch.cat([units[i] if i >= 0 else torch.zeros(6) for i in scene.tolist()])
    torch.testing.assert_close(f[0], raw / raw.norm())


def test_captions_are_those_of_their_scenes():
    made_data = made().data
    names = {number: word for word, number in made_data.vocabulary.items()}
    for part, name in ((made_data.train, "train"), (made_data.validation, "validation")):
        told = [caption.text.split() for caption in made_data.scenes[name].captions]
        for row, length, words in zip(part.words.tolist(), part.lengths, told, strict=True):
            assert len(words) == length
            said = [names.get(number) for number in row[:length]]
            assert all(a == b or a is None for a, b in zip(said, words, strict=True))
            assert name != "train" or None not in said


def test_a_more_general_caption_says_one_fact_of_the_other():
    told = made(held_out=60).data.scenes["test"]
    texts = data.general(told)
    several = [caption for caption in told.captions if len(caption.facts) > 1]
    assert texts[1::2] == [caption.text for caption in several][: data.COMPARED]
    assert all(a != b for a, b in zip(texts[::2], texts[1::2], strict=True))
    assert len(texts[0].split()) < len(texts[1].split())


def test_each_update_sees_an_image_once_with_one_of_its_captions():
    task = made(seed=3)
    images, rows = zip(*(task.batch(step) for step in range(1, 6)), strict=True)
    assert sorted(torch.cat(images).tolist()) == list(range(40))
    rows = torch.cat(rows)
    assert torch.equal(rows // captions.EACH, torch.cat(images))
    assert len(set((rows % captions.EACH).tolist())) > 2


def test_seeds_take_the_folds_in_turn():
    tasks = [made(seed=seed, folds=2) for seed in (0, 1, 2)]
    first, second, third = (task.parts["test"].places for task in tasks)
    assert torch.equal(first, third)
    assert not torch.equal(first, second)


def test_a_bag_of_words_is_better_than_chance_and_counts_words_alone():
    task = made(scenes=800, held_out=60, units=32)
    train_part, test = task.train, task.parts["test"]
    count = len(task.data.vocabulary) + 2
    energy = ranking.bag_of_words(train_part, test, count)
    chance = 100 - (100 / 60 + 500 / 60 + 1000 / 60) / 3
    assert ranking.scores(energy)["missed"] < chance - 10
    backwards = test.words.clone()
    for row, length in zip(backwards, test.lengths.tolist(), strict=True):
        row[:length] = row[:length].flip(0).clone()
    other = data.Part(test.units, test.places, backwards, test.lengths)
    torch.testing.assert_close(ranking.bag_of_words(train_part, other, count), energy)


def test_real_features_and_captions_can_be_trained_on(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    folder = tmp_path / "coco" / "images" / "10crop"
    folder.mkdir(parents=True)
    for part, n in (("train", 12), ("val", 6), ("test", 8)):
        np.save(folder / f"{part}.npy", np.random.default_rng(n).random((n, 9)))
        lines = [f"{part} {i % 3} of {i // 5}" for i in range(5 * n)]
        (tmp_path / "coco" / f"{part}.txt").write_text("\n".join(lines))
    wanted = {"dataset": "coco", "scenes": 12, "held_out": 4, "folds": 2, "batch_size": 4}
    config = EXPERIMENT.config("book", "layer", 0, **{**SMALL, **wanted})
    run = train(config, device="cpu", save=False)
    assert math.isfinite(run.result["final"]["test_missed"])
    assert "ordered" not in run.result["final"]
    assert EXPERIMENT.data(config.options) == captions.sha256(tmp_path / "coco")
    config = EXPERIMENT.config("book", "layer", 0, **{**SMALL, **wanted, "folds": 3})
    with pytest.raises(ValueError, match="12 test images are wanted and there are 8"):
        train(config, device="cpu", save=False)
    monkeypatch.delenv("LAYERNORM_DATA")
    with pytest.raises(ValueError, match=r"is read from \$LAYERNORM_DATA/coco"):
        EXPERIMENT.data(config.options)


# A run


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_every_arm_learns_sixteen_scenes_by_heart(arm):
    heart = {**EXPERIMENT.by_heart(arm), "learning_rate": 0.004, "hidden": 48, "held_out": 40}
    config = EXPERIMENT.config("book", arm, 0, **heart)
    result = train(config, device="cpu", save=False).result
    assert result["curves"]["train_error"]["value"][0] > 80
    assert result["final"]["train_error"] < 5
    assert result["final"]["validation_missed"] > 30


def test_final_metrics_and_curves_are_the_papers():
    result = train(EXPERIMENT.config("book", "layer", 0, **SMALL), device="cpu", save=False).result
    columns = {f"{what}_{r}" for what in ("caption", "image") for r in ("r1", "r5", "r10", "rank")}
    assert {f"best_test_{column}" for column in columns} <= result["final"].keys()
    chosen = 100 - sum(result["final"][f"validation_image_r{k}"] for k in (1, 5, 10)) / 3
    assert result["final"]["validation_missed"] == pytest.approx(chosen)
    assert 0 <= result["final"]["ordered"] <= 100
    assert result["final"]["missed_of_words"] > 0


def test_order_is_counted_by_hand(monkeypatch):
    """Two pairs: the first's general caption lies above, the second's below."""
    task = made()
    vectors = torch.zeros(4, 12)
    vectors[0, 0], vectors[1, :2], vectors[2, :2], vectors[3, 0] = 0.5, 0.6, 0.6, 0.5
    monkeypatch.setattr(task, "energies", lambda part: torch.rand(60, 12))
    monkeypatch.setattr(task, "embedded", lambda part: vectors)
    assert task.final()["ordered"] == 50.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "batch"}, "method must be one of none, layer, got 'batch'"),
        ({"batch_size": 5000}, "batch_size must be at most the 3000 training scenes, got 5000"),
        ({"examples": 3001}, "examples must be at most the 3000 training scenes, got 3001"),
        ({"batch_size": 1}, "batch_size: the value should be greater than or equal to 2"),
        ({"dataset": "flowers"}, "dataset: the value should be 'digits', 'mnist', 'coco', 'f8k'"),
    ],
)
def test_options_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        EXPERIMENT.config("book", "none", 0, **change)


def test_the_papers_profile_has_the_papers_sizes():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    assert (paper.hidden, paper.embedding, 4 * paper.units) == (1024, 300, 4096)
    assert (paper.batch_size, paper.learning_rate, paper.clip) == (128, 1e-3, 2.0)
    assert (paper.margin, paper.scenes, paper.held_out, paper.folds) == (0.05, 113_287, 1000, 5)
    assert paper.updates / paper.evaluations == 300
    assert EXPERIMENT.config("paper", "none/symmetric", 0).options.margin == 0.2


def test_the_papers_profile_starts_and_trains():
    few = {"updates": 2, "evaluations": 1, "scenes": 8, "held_out": 4, "folds": 1, "batch_size": 4}
    config = EXPERIMENT.config("paper", "layer", 0, **few)
    with seeded(0, CPU):
        trainer = Trainer(EXPERIMENT, config, CPU)
        trainer.update(1)
        trainer.update(2)
        assert all(math.isfinite(loss) for loss in trainer.look())
        assert 0 <= trainer.evaluate()["validation_missed"] <= 100


# Levels


def frame(curves, **columns):
    rows = [
        {"arm": arm, "seed": seed, "step": float(step), "seconds": step / 10, "value": value,
         "metric": "validation_missed", "options": {"learning_rate": 0.1}, **columns}
        for (arm, seed), curve in curves.items()
        for step, value in curve.items()
    ]  # fmt: skip
    return pandas.DataFrame(rows)


def test_the_level_is_the_best_of_the_baseline_in_tuning(monkeypatch):
    """Rate 0.1: best readings 70 and 60, mean 65; rate 0.2: 50 and 90; `layer` does not count."""
    tables = [
        frame({("none", 1): {0: 99, 5: 70}, ("none", 2): {0: 99, 5: 60, 9: 80}}),
        frame({("none", 1): {5: 50}, ("none", 2): {5: 90}}, options={"learning_rate": 0.2}),
        frame({("layer", 1): {5: 10}}),
    ]
    monkeypatch.setattr(records, "runs", lambda *where: [where])
    monkeypatch.setattr(records, "tidy", lambda runs: pandas.concat(tables))
    assert level.level() == 65.0


def test_updates_and_seconds_to_the_level_by_hand(monkeypatch):
    """Seed 0 is there halfway between 10 and 20; seed 1 at once; seeds 2, 3 at 20; 4 never."""
    monkeypatch.setattr(level, "level", lambda: 50.0)
    curves = {0: {0: 90, 10: 60, 20: 40}, 1: {0: 90, 10: 50, 20: 70}, 2: {0: 90, 20: 50}}
    curves |= {3: {0: 90, 20: 50}, 4: {0: 90, 10: 80, 20: 60}}
    runs = frame({("layer", seed): curve for seed, curve in curves.items()})
    found = level.until_level("step")(runs, "layer", ("layer",))
    assert found.tolist() == pytest.approx(np.log([15, 10, 20, 20, 20]).tolist())
    found = level.until_level("seconds")(runs, "layer", ("layer",))
    assert found.tolist() == pytest.approx(np.log([1.5, 1, 2, 2, 2]).tolist())
    never = runs[runs.seed.isin([0, 2, 4])]
    assert level.until_level("step")(never, "layer", ("layer",)).isna().all()
    monkeypatch.setattr(level, "level", lambda: math.nan)
    assert level.until_level("step")(runs, "layer", ("layer",)).isna().all()
