"""Runs of recurrent layers: same start for all arms, fresh sequences, the control's scale."""

from itertools import islice

import pytest
import torch

from layernorm.lab.analysis import networks
from layernorm.lab.data.lags import TASKS
from layernorm.lab.experiments import get
from layernorm.lab.experiments.run import train
from layernorm.lab.experiments.studies import sequences

STUDIES = {"adding": "adding", "copy": "copy_memory"}


def config(arm="paper", task="adding", **options):
    few = {"steps": 10, "hidden": 8, "batch_size": 10, "updates": 6, "evaluations": 3}
    return get(STUDIES[task]).config("book", arm, 0, **{**few, **options})


def built(arm, **options):
    torch.manual_seed(0)
    return sequences.build(config(arm, **options).options)


def result(**options):
    return train(config(**options), device="cpu", save=False).result


def drawn(count, **options):
    return list(islice(sequences.batches(config(**options).options, 0), count))


@pytest.mark.parametrize("task", TASKS)
def test_a_run_has_curves_their_means_and_the_loss_on_longer_sequences(task):
    got = result(task=task)
    assert set(got["curves"]) == {"validation_loss", "test_loss", "batch_loss"}
    curve = got["curves"]["test_loss"]
    assert curve["step"] == [0, 2, 4, 6]
    assert got["final"]["mean_test_loss"] == pytest.approx(sum(curve["value"][1:]) / 3)
    assert got["final"]["longer_loss"] > 0


def test_all_arms_of_a_seed_start_from_the_same_weights():
    nets = [built(arm) for arm in ("none", *sequences.VARIANTS)]
    for net in nets:
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
            assert torch.equal(getattr(net.recurrent, name), getattr(nets[0].recurrent, name))
        assert torch.equal(net.head.weight, nets[0].head.weight)
    b = nets[0].recurrent.bias_ih_l0
    assert torch.equal(b, torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(8))
    assert not nets[0].recurrent.bias_hh_l0.any()
    assert len({net.recurrent.variant for net in nets[1:]}) == len(sequences.VARIANTS)


def test_the_control_starts_with_both_terms_at_unit_variance():
    net, plain = (built(arm, steps=40) for arm in ("rescaled", "none"))
    x, _ = TASKS["adding"].draw(2000, 40, torch.Generator().manual_seed(5))
    lstm = net.recurrent
    assert (x @ lstm.weight_ih_l0.T).std().item() == pytest.approx(1, rel=0.03)
    assert networks._recurrent_spread(lstm, x).item() == pytest.approx(1, rel=0.03)
    assert networks._recurrent_spread(plain.recurrent, x).item() < 0.5
    for name in ("weight_ih_l0", "weight_hh_l0"):
        ratio = getattr(lstm, name) / getattr(plain.recurrent, name)
        torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_a_control_that_does_not_settle_is_refused():
    lstm = torch.nn.LSTM(2, 8)
    x, _ = TASKS["adding"].draw(10, 10, torch.Generator())
    with pytest.raises(RuntimeError, match=r"after 0 rounds of scaling, not 1; use more rounds"):
        networks.rescale_lstm_(lstm, x, rounds=0)


def test_batches_are_fresh_unless_examples_are_fixed():
    (_, first), (_, second) = drawn(2)
    assert not torch.equal(first, second)
    part = sequences.held_out(config(examples=20).options, 0)["train"][1].sort().values
    fixed = [y for _, y in drawn(4, examples=20)]
    for epoch in (fixed[:2], fixed[2:]):
        assert torch.equal(torch.cat(epoch, 1).sort().values, part)


def test_held_out_sequences_are_not_those_of_training():
    parts = sequences.held_out(config().options, 0)
    ((_, batch),) = drawn(1)
    assert not set(batch.flatten().tolist()) & set(parts["validation"][1].flatten().tolist())
    assert parts["validation"][1].shape == (1, sequences.HELD_OUT)
    assert not torch.equal(parts["validation"][1], parts["test"][1])


def test_a_layer_learns_to_add_over_a_short_lag():
    learned = {"steps": 6, "hidden": 16, "batch_size": 50, "updates": 150, "learning_rate": 0.03}
    assert result(**learned)["final"]["test_loss"] < TASKS["adding"].guess / 3
