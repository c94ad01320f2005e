"""Studies that look at steps: changes beside noise, and optimizers of the study's own."""

import copy

import pytest
import torch

from layernorm.lab.analysis import activations, networks
from layernorm.lab.analysis.weights import hidden
from layernorm.lab.experiments import get
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.run import train
from layernorm.lab.experiments.studies import angles, changes, own_steps


def config(study, arm, **options):
    return get(study).config("book", arm, 7, **{"updates": 16, "evaluations": 2, **options})


def test_noise_moves_the_outputs_as_far_as_it_is_asked_to():
    torch.manual_seed(0)
    first, x = networks.mlp([8, 32, 4])[:2], torch.randn(50, 8)
    for distance in (0.1, 3.0):
        with torch.no_grad():
            out, _ = changes.noisy(first, x, distance, generator(1))
            assert (out - first(x)).norm().item() == pytest.approx(distance, rel=1e-3)


@torch.no_grad()
def test_a_change_along_one_direction_has_fewer_directions_than_noise():
    """The null is a null: it tells a change that is correlated from one that is not."""
    task = changes.Changes(config("changes", "rescaled-tanh").options, 7, torch.device("cpu"))
    weight = task.model[0][0].weight
    noise = torch.randn(weight.shape, generator=generator(2))
    for step, told in (
        (torch.outer(torch.ones(128), torch.randn(64, generator=generator(3))), -0.5),
        (0.5 * noise * weight.norm() / noise.norm(), None),
    ):
        task.model = copy.deepcopy(task.model)
        task.model[0][0].weight.copy_(task.start[0][0].weight + 0.1 * step)
        final = task.final()
        apart = torch.tensor(final["change_directions"] / final["noise_directions"]).log().item()
        assert apart < told if told else abs(apart) < 0.15
        assert final["noise_moves"] == pytest.approx(1, rel=1e-3)


def test_uncentered_directions_of_noise_with_a_mean_are_one_and_centered_ones_many():
    noise = torch.randn(2000, 32, generator=generator(4)) + 20
    assert activations.directions(noise) < 1.2
    assert activations.varied_directions(noise) > 28


@pytest.mark.parametrize("name", angles.STEPS)
def test_a_step_is_the_optimizers_own(name):
    options = config("angles", angles.arm("layer", name)).options
    task = own_steps.OwnSteps(options, 7, torch.device("cpu"))
    other = copy.deepcopy(task.model.net)
    kind, usual = own_steps.OPTIMIZERS[options.optimizer]
    theirs = kind(hidden(other), lr=options.learning_rate, weight_decay=options.decay, **usual)
    for step in (1, 2, 3):
        x, _ = task.parts["train"]
        rows, draws = task.batches(step), generator(7, step)
        labels = torch.randint(10, (len(rows),), generator=draws)
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(other(x[rows]), labels).backward()
        theirs.step()
        task.loss(step)
    torch.testing.assert_close(hidden(task.model.net)[0], hidden(other)[0], rtol=0, atol=0)
    assert (task.model.angles[:3] > 0).all()


def test_the_engine_leaves_alone_what_took_its_own_steps():
    """A rate so small that nothing moves: then Adam has not moved anything either."""
    arm = angles.arm("none", "gradient descent")
    seen = train(config("angles", arm, learning_rate=1e-30), device="cpu", save=False).result
    norms = seen["curves"]["norm"]["value"]
    assert norms[0] == norms[-1]
    assert seen["final"]["late_angle"] == 0


def test_frozen_networks_learn_hidden_weights_alone():
    options = config("angles", angles.arm("layer", "Adam")).options
    task = own_steps.OwnSteps(options, 7, torch.device("cpu"))
    before = copy.deepcopy(task.model.net.state_dict())
    task.loss(1)
    moved = [n for n, p in task.model.net.state_dict().items() if not torch.equal(p, before[n])]
    assert moved == ["0.0.weight"]
