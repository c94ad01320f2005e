"""Every experiment and study: its plan, its arms at a small size, resuming."""

import math

import pytest
import torch
from lab.experiments.toy_experiment import stopped

from layernorm.lab import records
from layernorm.lab.experiments import NAMES, STUDIES, get, report
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.convnet import task as convnet
from layernorm.lab.experiments.experiment import TUNING_SEED
from layernorm.lab.experiments.mnist import model as mnist
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.run import Trainer, train

PAPERS = {  # the paper's profile cut to few and short updates, its other sizes as they are
    "attentive_reader": {"held_out": 8},
    "order_embeddings": {"scenes": 8, "held_out": 4, "folds": 1, "batch_size": 4},
    "skip_thoughts": {"hidden": 24, "held_out": 8, "vocabulary": 500},
    "handwriting": {"lines": 8, "held_out": 2, "hidden": 20, "points": 700},
}

SMALL = {"hidden": 12, "embedding": 7, "steps": 6, "held_out": 20, "watched": 20}


def small(name, arm, updates=2, **options):
    """Few updates of an arm of the profile `book`, of a small network where that is an option."""
    experiment = get(name)
    fields = experiment.options.model_fields
    there = {option: v for option, v in SMALL.items() if option in fields}
    layers = fields["hidden"].default if "hidden" in fields else None
    if isinstance(layers, tuple):
        there["hidden"] = [9] * len(experiment.arms[arm].get("hidden", layers))
    values = {**there, "updates": updates, "evaluations": 1, **options}
    return experiment.config("book", arm, 0, **values)


def judged(name, final):
    return [final[metric] for metric in (get(name).primary, get(name).tuned_on)]


@pytest.mark.parametrize("name", STUDIES)  # of the others below
def test_every_arm_trains_and_has_what_is_judged(name):
    for arm in get(name).profile("book").arms:
        final = train(small(name, arm), device="cpu", save=False).result["final"]
        assert all(map(math.isfinite, judged(name, final))), arm


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_interrupted_goes_on_to_the_same_bits(name, tmp_path):
    """Also where batches are drawn one after another, and the run is in its second epoch."""
    arms = get(name).profile("book").arms
    for arm in (arms[0], next((arm for arm in arms if "batch" in arm), arms[-1])):
        few = {"updates": 4, "evaluations": 4}
        for options in (few, {**few, "examples": 16, "batch_size": 8}):
            config = small(name, arm, **options)
            stopped(3, config, device="cpu", root=tmp_path)
            told: list[int] = []
            progress = lambda step, _, told=told: told.append(step)  # noqa: E731
            again = train(config, device="cpu", root=tmp_path, progress=progress)
            assert told == [3, 4]
            assert again.result == train(config, device="cpu", save=False).result


@pytest.mark.parametrize("name", NAMES)
def test_a_run_takes_nothing_from_the_generators_around_it(name):
    arm = get(name).profile("book").arms[-1]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = train(small(name, arm), device="cpu", save=False).result
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    assert train(small(name, arm), device="cpu", save=False).result == first
    other = get(name).config("book", arm, 1, **small(name, arm).options.model_dump())
    assert train(other, device="cpu", save=False).result != first


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_profile_starts_and_trains(name):
    few = {"updates": 2, "evaluations": 1, **PAPERS[name]}
    config = get(name).config("paper", "layer", 0, **few)
    with seeded(0, torch.device("cpu")):
        trainer = Trainer(get(name), config, torch.device("cpu"))
        trainer.update(1)
        trainer.update(2)
        assert all(map(math.isfinite, (*trainer.look(), *trainer.evaluate().values())))


LEARNS = {
    "mnist": {"learning_rate": 0.01},
    "convnet": {"learning_rate": 0.01},
    "attentive_reader": {"learning_rate": 0.02, "updates": 120, "hidden": 24, "min_samples": 2,
                         "examples": 8, "batch_size": 8},
    "skip_thoughts": {"learning_rate": 0.02, "updates": 300, "hidden": 32, "vocabulary": 300,
                      "held_out": 20, "examples": 6, "batch_size": 6},
}  # fmt: skip


LEARNERS = [(n, a) for n in LEARNS for a in get(n).profile("book").arms if "circular" not in a]


@pytest.mark.parametrize(("name", "arm"), LEARNERS)
def test_an_arm_learns_a_few_examples_by_heart_and_no_others(name, arm):
    options = {**get(name).by_heart(arm), **LEARNS[name]}
    result = train(get(name).config("book", arm, 0, **options), device="cpu", save=False).result
    assert all(map(math.isfinite, judged(name, result["final"])))
    assert result["curves"]["train_error"]["value"][0] > 50
    assert result["final"]["train_error"] == 0
    assert result["final"]["train_nll"] < 0.1
    assert result["final"]["validation_error"] > 5


@pytest.mark.parametrize("name", NAMES)
def test_batches_and_losses_depend_on_the_seed_and_the_update_alone(name):
    """In evaluation mode, so that neither dropout nor running statistics tell them apart."""
    config = small(name, get(name).profile("book").arms[0])
    tasks = [get(name).task(config.options, seed, torch.device("cpu")) for seed in (0, 0, 1)]
    losses = []
    for task, order in zip(tasks, ((1, 2), (2, 1), (1, 2)), strict=True):
        task.model.load_state_dict(tasks[0].model.state_dict())
        task.model.eval()
        losses.append({step: task.loss(step).item() for step in order})
    assert losses[0] == losses[1]
    assert len({*losses[0].values(), *losses[2].values()}) == 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": -1.0}, "learning_rate: the value should be greater than 0"),
        ({"rescaled": True}, "rescaled is the control of method 'none', got method"),
        ({"evaluations": 10**9}, r"evaluations must be at most updates \(\d+\), got 1000000000"),
        ({"exampels": 3}, "unknown option 'exampels'; did you mean 'examples'"),
        ({"examples": 1, "batch_size": 2}, "batch_size 2 exceeds the 1 training examples"),
    ],
)
def test_options_that_fit_no_experiment_are_refused(name, change, message):
    experiment = get(name)
    arm = next(a for a, values in experiment.arms.items() if values.get("method", "none") != "none")
    with pytest.raises(ValueError, match=message):
        experiment.config("book", arm, 0, **change)


@pytest.mark.parametrize("name", ["mnist", "convnet", "batch_size"])
def test_a_batch_larger_than_the_data_is_refused(name):
    config = get(name).config("book", get(name).profile("book").arms[0], 0, batch_size=1198)
    with pytest.raises(ValueError, match="1197 training examples"):
        train(config, device="cpu", save=False)


@pytest.mark.parametrize(
    ("name", "profile", "file"),
    [
        ("mnist", "standard", "mnist/train-images-idx3-ubyte.gz"),
        ("convnet", "standard", "mnist/train-images-idx3-ubyte.gz"),
        ("convnet", "paper", "cifar10/cifar-10-binary.tar.gz"),
    ],
)
def test_missing_data_are_refused_with_what_to_do(name, profile, file, tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise ValueError("no network")

    monkeypatch.setattr(pytest.importorskip("pooch"), "retrieve", no_network)
    monkeypatch.setattr("layernorm.lab.data.pinned.cache_folder", lambda name: tmp_path / "cache")
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    for module in (mnist, convnet):
        module.splits.cache_clear()
    with pytest.raises(OSError, match=r"set LAYERNORM_DATA") as refused:
        train(get(name).config(profile, "layer", 0), device="cpu", save=False)
    assert f"$LAYERNORM_DATA/{file}" in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_follows_the_rules(name):
    experiment = get(name)
    for profile_name, profile in experiment.profiles.items():
        alive = profile_name == "book" and name not in STUDIES  # made in the notebook, not recorded
        assert len(profile.seeds) >= (3 if alive else 5)
        assert not {-1, TUNING_SEED} & {min(profile.seeds), *profile.seeds}
        assert not profile.learning_rates or len(profile.learning_rates) >= 4
    for arm in experiment.arms:
        config = experiment.config("book", arm, 0, **experiment.by_heart(arm))
        assert config.options.batch_size <= config.options.examples
    assert "rescaled" in "".join(experiment.arms) or name == "data_shift"


@pytest.mark.parametrize("name", STUDIES)
def test_published_runs_of_a_study_are_those_that_its_plan_asks_for(name):
    with records.published_only():
        done = finished(name)
    sweep = Sweep(name, "book")
    assert sweep.wanted(done) == []
    assert len(sweep.runs(done)) == sum(sweep.counts(done).values())


@pytest.mark.parametrize("name", NAMES)
def test_published_runs_of_an_arm_are_on_the_same_data(name):
    """By their digest, which the key of a run leaves out."""
    with records.published_only():
        runs = finished(name).values()
    found = {}
    for run in runs:
        where = run.config["profile"], run.config["arm"]
        assert found.setdefault(where, run.config["data"]) == run.config["data"], where


@pytest.mark.parametrize("name", [name for name in NAMES if get(name).original])
def test_the_box_sets_the_papers_experiment_beside_ours(name):
    experiment = get(name)
    box = report.box(experiment)
    rows = ["claim", "data", "setup", "parameters", "updates", "seeds", "result"]
    assert list(box.index) == rows
    assert box.map(len).to_numpy().all()
    said = isinstance(experiment.original.updates, int)
    assert ("% of the paper's" in box.loc["updates", "here"]) == said
    counted = not experiment.original.parameters
    assert ("% of the paper's" in box.loc["parameters", "here"]) == counted
    if report.recorded(experiment) is None:
        assert box.loc["result", "here"] == "not measured yet"
    else:
        lines = box.loc["result", "here"].splitlines()
        assert len(lines) == len(experiment.original.rows)
        for name, line in zip(experiment.original.rows, lines, strict=True):
            assert line.startswith(f"{name}: ")
            # no interval only where an arm has no runs yet, or fails a check before it is judged
            assert "[" in line or line.endswith((": inconclusive", ": not yet tested")), line


def test_the_box_counts_the_parameters():
    box = report.box(get("mnist"))
    products, gains_and_biases = 784 * 1000 + 1000 * 1000 + 1000 * 10 + 10, 2 * 2 * 1000
    assert box.loc["parameters", "the paper"] == (
        f"{products + gains_and_biases:,}, counted in our code"
    )
    assert box.loc["parameters", "here"].endswith(" (100.00% of the paper's)")
    convnet = report.box(get("convnet"))
    assert convnet.loc["parameters", "the paper"] == "not said"
    assert "%" not in convnet.loc["parameters", "here"]


def test_the_box_is_two_columns_that_wrap_on_a_phone():
    box = report.box(get("mnist"))
    html = box._repr_html_()
    assert "<table" not in html
    assert html.count("<em>the paper</em>") == html.count("<em>here</em>") == len(box)
    assert html.count("flex-wrap: wrap") == len(box)
    for line in box.loc["result", "here"].split("\n"):
        assert f"<div>{line}</div>" in html


def test_an_experiment_of_our_own_has_no_box():
    with pytest.raises(ValueError, match="drift repeats no experiment of the paper"):
        report.box(get("drift"))
