import math
from dataclasses import replace

import pytest
import torch

from layernorm.lab import data, records
from layernorm.lab.experiments import studies
from layernorm.lab.experiments.studies import planning, sequences, training

SMALL = studies.Config("test", "layer", "layer", batch_size=32, updates=20, evaluations=4)


def test_the_same_seed_gives_the_same_result_and_another_seed_another():
    first, again = studies.train(SMALL), studies.train(SMALL)
    assert first.result == again.result
    assert studies.train(replace(SMALL, seed=1)).result != first.result


def test_training_leaves_the_global_random_state_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    studies.train(SMALL)
    assert torch.equal(torch.get_rng_state(), state)


def test_curves_are_read_at_the_start_and_evenly_after():
    curve = studies.train(SMALL).result["curves"]["train_nll"]
    assert curve["step"] == [0, 5, 10, 15, 20]
    assert curve["value"][0] > curve["value"][-1]


def test_a_network_learns_the_digits():
    final = studies.train(replace(SMALL, updates=200, learning_rate=1e-2)).result["final"]
    assert final["test_error"] < 10  # a tenth of what always naming one class gives


def test_a_run_that_diverges_is_a_result():
    record = studies.train(replace(SMALL, method="none", learning_rate=1e36))
    assert record.result["diverged_at"] >= 2
    assert math.isinf(record.result["final"]["mean_train_nll"])


def test_sorted_batches_hold_few_classes_and_shuffled_ones_many():
    y = data.digits().train.y

    def classes(order):
        config = replace(SMALL, order=order)
        batches = training._batches(y, config, torch.Generator().manual_seed(0))
        return [len(y[next(batches)].unique()) for _ in range(20)]

    assert max(classes("sorted")) <= 3
    assert min(classes("shuffled")) >= 6


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_an_epoch_visits_no_example_twice(order):
    y = data.digits().train.y
    batches = training._batches(y, replace(SMALL, order=order), torch.Generator().manual_seed(0))
    epoch = torch.cat([next(batches) for _ in range(len(y) // 32)])
    assert len(epoch.unique()) == len(epoch)


def test_the_control_starts_at_unit_variance_and_shares_its_seeds_start():
    from layernorm.lab.analysis.networks import summed_inputs

    x = data.digits().train.x.flatten(1)
    net = training.build(studies.Config("test", "rescaled", rescaled=True), x)
    assert all(abs(a.std().item() - 1) < 1e-3 for a in summed_inputs(net, x))
    plain = training.build(studies.Config("test", "none"), x)
    ratio = net[0][0].weight / plain[0][0].weight
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_centering_takes_a_shift_of_the_data_away():
    plain, shifted, centered, both = (
        training._tensors(replace(SMALL, input_shift=shift, centered=flag))
        for flag in (False, True)
        for shift in (0.0, 10.0)
    )
    for part in plain:
        torch.testing.assert_close(shifted[part][0], plain[part][0] + 10)
        torch.testing.assert_close(both[part][0], centered[part][0], rtol=0, atol=1e-5)
    assert centered["train"][0].mean(0).abs().max() < 1e-6
    assert centered["test"][0].mean(0).abs().max() > 1e-3  # by the training set's mean, not its own


def test_the_best_test_error_is_read_where_the_validation_loss_is_lowest():
    rows = [
        {"train_nll": 3.0, "validation_nll": v, "test_nll": 1.0, "test_error": e}
        for v, e in [(0.1, 1.0), (0.5, 6.0), (0.2, 7.0), (0.3, 2.0)]
    ]
    final = training._result([0, 1, 2, 3], rows, None)["final"]
    assert final["best_test_error"] == 7.0  # the start, before any update, does not count
    assert final["mean_validation_nll"] == pytest.approx(1 / 3)
    assert math.isinf(training._result([0, 1, 2, 3], rows, 4)["final"]["best_test_error"])


def test_a_learning_rate_is_never_chosen_from_test_data():
    with pytest.raises(ValueError, match="tuned_on must be a metric of the validation examples"):
        studies.Plan("test", "?", {}, "x", 0.1, tuned_on="mean_test_nll")


def test_tuning_extends_the_grid_when_an_edge_wins(monkeypatch):
    def fake(config, profile):
        nll = abs(math.log10(config.learning_rate) - math.log10(0.5))
        config = training._record_config(config, profile)
        return records.new(config, {"final": {"validation_nll": nll}}, {}, [])

    monkeypatch.setattr(planning, "train", fake)
    study = studies.Plan("test", "?", {"a": {}}, "x", 0.1, learning_rates=(1e-3, 1e-2))
    runs = studies.tune(study, "a")
    rates = sorted(r.config["options"]["learning_rate"] for r in runs)
    assert rates == pytest.approx([1e-3, 1e-2, 0.1, 1.0, 10.0])
    assert planning.best_rate(runs, "validation_nll") == pytest.approx(1.0)


@pytest.mark.parametrize("name", sorted(planning.plans()))
def test_every_plan_follows_the_rules_and_starts(name):
    study = studies.plan(name)
    assert len(study.seeds) >= 5
    assert planning.TUNING_SEED not in study.seeds
    assert len(study.learning_rates) >= 4
    for arm in study.arms:
        config = replace(study.config(arm, 0, 1e-3), updates=2, evaluations=1)
        if isinstance(config, sequences.Config):
            config = replace(config, steps=6)
        record = studies.train(config)
        assert study.primary in record.result["final"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"learning_rate": math.nan}, "learning_rate must be positive"),
        ({"method": "layr"}, "did you mean"),
        ({"order": "random"}, "order must be"),
        ({"rescaled": True}, "rescaled is the control"),
        ({"evaluations": 21}, "evaluations must be at most"),
        ({"input_shift": math.inf}, "input_shift must be finite"),
    ],
)
def test_a_bad_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="exceeds the 16 training examples"):
        studies.train(replace(SMALL, examples=16))
