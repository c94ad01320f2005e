"""What holds for every experiment and study: its plan, its arms at a small size, resuming."""

import math

import pytest
import torch

from layernorm.lab import records
from layernorm.lab.experiments import NAMES, STUDIES, get
from layernorm.lab.experiments.experiment import TUNING_SEED
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.run import train

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


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_trains_and_has_what_is_judged(name):
    experiment = get(name)
    for arm in experiment.profile("book").arms:
        final = train(small(name, arm), device="cpu", save=False).result["final"]
        for metric in (experiment.primary, experiment.tuned_on):
            assert math.isfinite(final[metric]), (arm, metric)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_interrupted_goes_on_to_the_same_bits(name, tmp_path):
    """Also where batches are drawn one after another, and the run is in its second epoch."""

    def stop(step, metrics):
        if step == 5:
            raise KeyboardInterrupt

    arms = get(name).profile("book").arms
    for arm in (arms[0], next((arm for arm in arms if "batch" in arm), arms[-1])):
        few = {"updates": 8, "evaluations": 8}
        for options in (few, {**few, "examples": 16, "batch_size": 8}):
            config = small(name, arm, **options)
            with pytest.raises(KeyboardInterrupt):
                train(config, device="cpu", root=tmp_path, checkpoint_seconds=0, progress=stop)
            told: list[int] = []
            again = train(
                config,
                device="cpu",
                root=tmp_path,
                progress=lambda step, _, told=told: told.append(step),
            )
            assert told == [5, 6, 7, 8]
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
    assert len(sweep.runs(done)) == len(sweep.arms) * len(sweep.seeds)
