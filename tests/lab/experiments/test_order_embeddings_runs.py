"""Runs of order-embeddings: features and captions of each image, folds, levels, the paper's figure
and table, and options and files that are refused."""

import math

import numpy as np
import pandas
import pytest
import torch
from lab.experiments.ordering import EXPERIMENT, SMALL, made

from layernorm.lab import records
from layernorm.lab.analysis.curves import logarithm, until
from layernorm.lab.data import captions, scenes
from layernorm.lab.experiments.order_embeddings import data, level, ranking, shown
from layernorm.lab.experiments.run import train

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


def test_the_papers_profile_has_the_papers_sizes():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    assert (paper.hidden, paper.embedding, 4 * paper.units) == (1024, 300, 4096)
    assert (paper.batch_size, paper.learning_rate, paper.clip) == (128, 1e-3, 2.0)
    assert (paper.margin, paper.scenes, paper.held_out, paper.folds) == (0.05, 113_287, 1000, 5)
    assert paper.updates / paper.evaluations == 300
    assert EXPERIMENT.config("paper", "none/symmetric", 0).options.margin == 0.2


# Levels


def frame(curves, **columns):
    rows = [
        {"arm": arm, "seed": seed, "step": float(step), "seconds": step / 10, "value": value,
         "metric": "validation_missed", "options": {"learning_rate": 0.1}, "profile": "book",
         **columns}
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


def test_updates_and_seconds_to_the_level_by_hand():
    """Seed 0 is there halfway between 10 and 20; seed 1 at once; seeds 2, 3 at 20; 4 never."""

    def taken(unit, runs, at=50.0):
        metric = logarithm(until(level.SELECT, {"book": at}.get, unit))
        return metric(runs, "layer", ("layer",))

    curves = {0: {0: 90, 10: 60, 20: 40}, 1: {0: 90, 10: 50, 20: 70}, 2: {0: 90, 20: 50}}
    curves |= {3: {0: 90, 20: 50}, 4: {0: 90, 10: 80, 20: 60}}
    runs = frame({("layer", seed): curve for seed, curve in curves.items()})
    found = taken("step", runs)
    assert found.tolist() == pytest.approx(np.log([15, 10, 20, 20, 20]).tolist())
    found = taken("seconds", runs)
    assert found.tolist() == pytest.approx(np.log([1.5, 1, 2, 2, 2]).tolist())
    never = runs[runs.seed.isin([0, 2, 4])]
    assert taken("step", never).isna().all()
    assert taken("step", runs, math.nan).isna().all()


# Shown


def test_the_table_has_the_papers_rows_and_no_impossible_intervals():
    """0, 0 and 4 have an interval from below 0; 97, 100 and 100 one to above 100."""
    values = {"best_test_caption_r1": (0, 0, 4), "best_test_image_r10": (97, 100, 100)}
    rows = [
        {"arm": "layer", "seed": seed, "metric": metric, "step": math.nan, "value": float(value)}
        for metric, of in values.items()
        for seed, value in enumerate(of)
    ]
    table = shown.table_2(pandas.DataFrame(rows), ["layer"])["layer"]
    assert list(table.index) == [
        *("caption R@1", "caption R@5", "caption R@10", "caption mean r"),
        *("image R@1", "image R@5", "image R@10", "image mean r"),
    ]
    assert table["caption R@1"] == "1.3 [0.0, 7.1]"  # 4/3 ± 4.30 · 2.31 / sqrt(3)
    assert table["image R@10"] == "99.0 [94.7, 100.0]"
    assert table["image R@1"] == "not measured yet"


def test_without_runs_figure_and_table_say_so():
    pytest.importorskip("matplotlib").use("Agg")
    empty = records.tidy([])
    fig = shown.figure_1(empty, ["none"])
    assert [ax.texts[0].get_text() for ax in fig.axes] == ["not measured yet"] * 3
    assert set(shown.table_2(empty, ["none"])["none"]) == {"not measured yet"}


def test_the_figure_draws_the_curves_of_validation():
    pytest.importorskip("matplotlib").use("Agg")
    run = train(EXPERIMENT.config("book", "layer", 0, **SMALL), device="cpu", save=False)
    again = train(EXPERIMENT.config("book", "layer", 1, **SMALL), device="cpu", save=False)
    fig = shown.figure_1(records.tidy([run, again]), ["layer"])
    for ax, k in zip(fig.axes, ranking.KS, strict=True):
        curves = [one.result["curves"][f"validation_image_r{k}"]["value"] for one in (run, again)]
        np.testing.assert_allclose(ax.lines[0].get_ydata(), np.mean(curves, axis=0))


def test_a_picture_has_each_digit_at_its_place():
    plt = pytest.importorskip("matplotlib.pyplot")
    told = made().data.scenes["test"]
    x = data.DATASETS["digits"].load().test.x
    _, ax = plt.subplots()
    shown.picture(ax, "digits", "test", told, 0)
    pixels = ax.images[0].get_array()
    for image, (top, left) in zip(
        told.images[0].tolist(), ((0, 0), (0, 9), (9, 0), (9, 9)), strict=True
    ):
        place = pixels[top : top + 8, left : left + 8]
        expected = np.zeros((8, 8)) if image == scenes.EMPTY else x[image].numpy()
        np.testing.assert_array_equal(place, expected)
    plt.close("all")
