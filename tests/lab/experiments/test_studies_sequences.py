"""Runs of recurrent layers: same start for all arms, fresh sequences, the control's scale."""

import math
from dataclasses import replace

import pytest
import torch

from layernorm.lab import records
from layernorm.lab.data.lags import TASKS
from layernorm.lab.experiments import studies
from layernorm.lab.experiments.studies import planning, sequences

SMALL = sequences.Config(
    "test", "paper", "layer", steps=10, hidden=8, batch_size=10, updates=6, evaluations=3
)


def test_the_same_seed_gives_the_same_result_and_another_seed_another():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, again = studies.train(SMALL), studies.train(SMALL)
    assert first.result == again.result
    assert studies.train(replace(SMALL, seed=1)).result != first.result
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("task", TASKS)
def test_a_record_has_curves_their_means_and_the_loss_on_longer_sequences(task):
    result = studies.train(replace(SMALL, task=task)).result
    assert set(result["curves"]) == {"validation_loss", "test_loss"}
    curve = result["curves"]["test_loss"]
    assert curve["step"] == [0, 2, 4, 6]
    assert result["final"]["mean_test_loss"] == pytest.approx(sum(curve["value"][1:]) / 3)
    assert result["final"]["test_loss"] == curve["value"][-1]
    assert result["final"]["longer_loss"] > 0


def test_all_arms_of_a_seed_start_from_the_same_weights():
    nets = [sequences.build(replace(SMALL, method="none", arm="none"))]
    nets += [sequences.build(replace(SMALL, variant=variant)) for variant in sequences.VARIANTS]
    for net in nets:
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
            assert torch.equal(getattr(net.recurrent, name), getattr(nets[0].recurrent, name))
        assert torch.equal(net.head.weight, nets[0].head.weight)
    b = nets[0].recurrent.bias_ih_l0
    assert torch.equal(b, torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(8))
    assert not nets[0].recurrent.bias_hh_l0.any()
    assert len({net.recurrent.variant for net in nets[1:]}) == len(sequences.VARIANTS)


def test_the_control_starts_with_both_terms_at_unit_variance():
    config = replace(SMALL, method="none", arm="rescaled", rescaled=True, steps=40)
    net, plain = sequences.build(config), sequences.build(replace(config, rescaled=False))
    x, _ = TASKS["adding"].draw(2000, 40, torch.Generator().manual_seed(5))
    lstm = net.recurrent
    assert (x @ lstm.weight_ih_l0.T).std().item() == pytest.approx(1, rel=0.03)
    assert sequences._recurrent_spread(lstm, x).item() == pytest.approx(1, rel=0.03)
    assert sequences._recurrent_spread(plain.recurrent, x).item() < 0.5
    for name in ("weight_ih_l0", "weight_hh_l0"):
        ratio = getattr(lstm, name) / getattr(plain.recurrent, name)
        torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_a_control_that_does_not_settle_is_refused():
    lstm = torch.nn.LSTM(2, 8)
    x, _ = TASKS["adding"].draw(10, 10, torch.Generator())
    with pytest.raises(RuntimeError, match=r"after 0 rounds of scaling, not 1; use more rounds"):
        sequences.rescale_(lstm, x, rounds=0)


def test_batches_are_fresh_unless_examples_are_fixed():
    fresh = sequences._batches(SMALL, TASKS["adding"])
    first, second = next(fresh), next(fresh)
    assert not torch.equal(first[1], second[1])
    fixed = sequences._batches(replace(SMALL, examples=20), TASKS["adding"])
    epoch = torch.cat([next(fixed)[1] for _ in range(2)], 1)
    part = sequences._held_out(replace(SMALL, examples=20), TASKS["adding"])["train"][1]
    assert torch.equal(epoch.sort().values, part.sort().values)
    assert torch.equal(torch.cat([next(fixed)[1] for _ in range(2)], 1).sort().values[0],
                       part.sort().values[0])  # fmt: skip


def test_held_out_sequences_are_not_those_of_training():
    parts = sequences._held_out(SMALL, TASKS["adding"])
    batch = next(sequences._batches(SMALL, TASKS["adding"]))[1]
    seen = set(batch.flatten().tolist())
    assert not seen & set(parts["validation"][1].flatten().tolist())
    assert parts["validation"][1].shape == (1, sequences.HELD_OUT)
    assert not torch.equal(parts["validation"][1], parts["test"][1])


def test_a_layer_learns_to_add_over_a_short_lag():
    config = replace(SMALL, steps=6, hidden=16, batch_size=50, updates=150, learning_rate=0.03)
    assert studies.train(config).result["final"]["test_loss"] < TASKS["adding"].guess / 3


def test_a_run_that_diverges_is_a_result():
    record = studies.train(replace(SMALL, method="none", learning_rate=1e36))
    assert record.result["diverged_at"] is not None
    assert math.isinf(record.result["final"]["mean_test_loss"])
    assert math.isinf(record.result["final"]["longer_loss"])


def test_a_record_depends_on_the_layer_and_can_be_saved(tmp_path):
    record = studies.train(SMALL)
    assert records.read(records.save(record, tmp_path)).result == record.result
    assert record.digest.startswith("train ")
    assert records.stale(record) == ""
    assert record.config["options"]["variant"] == "paper"


def test_a_plan_makes_configurations_of_its_own_kind():
    assert isinstance(planning.plan("adding").config("paper", 0, 0.1), sequences.Config)
    assert isinstance(planning.plan("drift").config("layer-tanh", 0, 0.1), studies.Config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "sorting"}, "task must be one of adding, copy, got 'sorting'"),
        ({"variant": "papers"}, "variant must be one of paper, joint"),
        ({"method": "batch"}, "method must be one of none, layer"),
        ({"rescaled": True}, "rescaled is the control"),
        ({"steps": 0}, "steps must be positive"),
        ({"learning_rate": math.nan}, "learning_rate must be positive"),
        ({"evaluations": 7}, "evaluations must be at most updates"),
        ({"examples": 5}, "batch_size 10 exceeds the 5 training examples"),
    ],
)
def test_a_bad_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)
