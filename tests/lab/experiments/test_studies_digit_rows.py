"""Sequences of digit rows, and the statistics that a trained network is tried with."""

import copy
from itertools import islice

import pytest
import torch

from layernorm.lab import data
from layernorm.lab.experiments import get
from layernorm.lab.experiments.run import train
from layernorm.lab.experiments.studies import digit_rows


def config(arm="batch-0.1", **options):
    few = {"updates": 20, "evaluations": 2}
    return get("step_statistics").config("book", arm, 0, **{**few, **options})


def built(arm="batch-0.1"):
    torch.manual_seed(3)
    return digit_rows.build(config(arm).options, 3)


def drawn(count):
    return islice(digit_rows.batches(config().options, 0), count)


@pytest.fixture(scope="module")
def trained():
    """A batch-normalized network after a few batches in training mode."""
    net = built()
    for batch in drawn(5):
        net(batch)
    return net


def test_a_sequence_ends_with_the_digit_that_is_asked_for():
    examples = data.digits().train
    last, digits = torch.tensor([5, 9, 7]), torch.tensor([2, 1, 3])
    batch = digit_rows.sequences(examples, last, digits, torch.Generator().manual_seed(0))
    assert batch.x.shape == (24, 3, 8)
    assert batch.lengths.tolist() == [16, 8, 24]
    for k, end in enumerate(batch.lengths):
        assert torch.equal(batch.x[end - 8 : end, k], examples.x[last[k]])
        assert not batch.x[end:, k].any()
        assert (batch.x[:end, k].unflatten(0, (-1, 8)).sum((1, 2)) > 0).all()
    assert torch.equal(batch.y, examples.y[last])


def test_lengths_follow_the_chances_and_parts_do_not_mix():
    lengths = digit_rows.drawn_lengths(10_000, torch.Generator().manual_seed(0))
    for n, chance in enumerate(digit_rows.CHANCES, start=1):
        assert (lengths == n).double().mean().item() == pytest.approx(chance, abs=0.02)
    test = digit_rows.held_out("test", 6)
    assert torch.equal(test.y, data.digits().test.y)
    rows = {tuple(r.flatten().tolist()) for r in data.digits().test.x}
    seen = test.x.transpose(0, 1).unflatten(1, (6, 8)).flatten(0, 1)
    assert {tuple(r.flatten().tolist()) for r in seen} <= rows


def test_all_arms_of_a_seed_start_from_the_same_weights_and_their_gains():
    nets = {arm: built(arm) for arm in get("step_statistics").arms}
    for arm, net in nets.items():
        layer, plain = net.recurrent, nets["none"].recurrent
        assert torch.equal(net.head.weight, nets["none"].head.weight)
        if arm != "rescaled":
            assert torch.equal(layer.weight_hh_l0, plain.weight_hh_l0)
        assert layer.bias_ih_l0.chunk(4)[1].eq(1).all()
    for arm, name in (("batch-0.1", "bn_c_weight_l0"), ("layer-0.1", "ln_ih_weight_l0")):
        assert getattr(nets[arm].recurrent, name).eq(0.1).all()
    assert nets["layer-1"].recurrent.ln_hh_bias_l0.eq(0).all()


def test_shared_statistics_are_those_of_all_cases_and_steps():
    """Input terms do not depend on statistics: their pooled moments can be computed at once."""
    net = built().double()
    net.recurrent.momentum = 1.0
    batch = digit_rows.held_out("test")
    batch = digit_rows.Batch(batch.x.double(), batch.lengths, batch.y)
    net(batch)
    digit_rows.share_statistics_(net.recurrent)
    a = batch.packed().data @ net.recurrent.weight_ih_l0.T
    mean, var = net.recurrent.running_mean_ih_l0, net.recurrent.running_var_ih_l0
    torch.testing.assert_close(mean, a.mean(0).expand_as(mean), rtol=0, atol=1e-12)
    # within steps unbiased, between steps exact: no more than 1/n apart from either variance
    torch.testing.assert_close(var, a.var(0).expand_as(var), rtol=0.1, atol=0)


def test_repeated_and_own_statistics(trained):
    repeated = digit_rows.with_repeated_statistics(trained, 6).recurrent
    old = trained.recurrent
    for start in (16, 24, 40):
        assert torch.equal(
            repeated.running_var_c_l0[start : start + 8], old.running_var_c_l0[16:24]
        )
    assert torch.equal(repeated.running_mean_hh_l0[:24], old.running_mean_hh_l0)
    before = copy.deepcopy(trained.state_dict())
    own = digit_rows.with_own_statistics(trained, 6, seed=0).recurrent
    assert own.samples_per_batch.min() > 150
    assert torch.equal(own.weight_hh_l0, old.weight_hh_l0)
    assert all(torch.equal(v, before[k]) for k, v in trained.state_dict().items())


def test_padding_counts_only_where_it_is_asked_to():
    kept, padded = built(), built("batch-padded")
    (batch,) = drawn(1)
    for net in (kept, padded):
        net(batch)
    counts = kept.recurrent.num_samples_tracked
    assert counts[0] == 32 > counts[8] > counts[16]
    assert padded.recurrent.num_samples_tracked[: len(batch.x)].eq(32).all()


def test_a_trained_network_is_tried_with_several_statistics():
    result = train(config(), save=False).result
    final = result["final"]
    assert final["test_nll"] < result["curves"]["test_nll"]["value"][0]
    assert {"shared_nll", "own_6_nll", "repeated_6_nll", "test_6_error"} <= set(final)
