"""A network on the digits: its batches, its start, what is done to its inputs."""

import pytest
import torch

from layernorm.lab import data
from layernorm.lab.analysis.networks import summed_inputs
from layernorm.lab.experiments import get
from layernorm.lab.experiments.run import train
from layernorm.lab.experiments.studies import digits


def config(study="batch_size", arm="layer-128", seed=0, **options):
    few = {"batch_size": 32, "updates": 20, "evaluations": 4}
    return get(study).config("book", arm, seed, **{**few, **options})


def result(*which, **options):
    return train(config(*which, **options), device="cpu", save=False).result


def options(**values):
    return config(**values).options


def built(seed=0, arm="none-128", **values):
    torch.manual_seed(seed)
    x = data.digits().train.x.flatten(1)
    return digits.build(options(arm=arm, **values), seed, x), x


def test_a_network_learns_the_digits():
    final = result(updates=200, learning_rate=1e-2)["final"]
    assert final["test_error"] < 10  # a tenth of what always naming one class gives


def first_batches(order, count):
    y = data.digits().train.y
    drawn = digits.batches(y, options(order=order), seed=0)
    return [(index, y[index]) for index, _ in zip(drawn, range(count), strict=False)]


def test_sorted_batches_hold_few_classes_and_shuffled_ones_many():
    def classes(order):
        return [len(y.unique()) for _, y in first_batches(order, 20)]

    assert max(classes("sorted")) <= 3
    assert min(classes("shuffled")) >= 6


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_an_epoch_visits_no_example_twice(order):
    epoch = torch.cat([index for index, _ in first_batches(order, 1197 // 32)])
    assert len(epoch.unique()) == len(epoch)


def test_the_control_starts_at_unit_variance_and_shares_its_seeds_start():
    net, x = built(arm="rescaled-128")
    assert all(abs(a.std().item() - 1) < 1e-3 for a in summed_inputs(net, x))
    ratio = net[0][0].weight / built()[0][0][0].weight
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_the_control_undoes_a_common_factor_and_nothing_else():
    def first_weight(**start):
        return built(arm="rescaled-128", **start)[0][0][0].weight

    torch.testing.assert_close(first_weight(initial_scale=10.0), first_weight())
    assert (first_weight(initial_shift=1.0) - first_weight()).abs().max() > 0.01
    assert (first_weight(initial_spread=1.0) - first_weight()).abs().max() > 0.01


def test_centering_takes_a_shift_of_the_data_away():
    plain, shifted, centered, both = (
        digits.prepared(options(input_shift=shift, centered=flag))
        for flag in (False, True)
        for shift in (0.0, 10.0)
    )
    for part in plain:
        torch.testing.assert_close(shifted[part][0], plain[part][0] + 10)
        torch.testing.assert_close(both[part][0], centered[part][0], rtol=0, atol=1e-5)
    assert centered["train"][0].mean(0).abs().max() < 1e-6
    assert centered["test"][0].mean(0).abs().max() > 1e-3  # by the training set's mean, not its own


def test_a_watched_run_records_what_it_saw():
    seen = result("drift", "layer-tanh", updates=4)
    assert seen["curves"]["drift_below"]["value"][0] == 0
    assert 0 < seen["final"]["drift_below"] != seen["final"]["drift"]
    assert 1 <= seen["final"]["change_directions"] < 128
    plain = result("drift", "layer-tanh", updates=4, watch=False)
    assert seen["curves"]["test_nll"] == plain["curves"]["test_nll"]  # watching changes nothing
