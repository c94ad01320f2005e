"""Transformers without norms: at the start, after training, and with norms that are frozen."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import layernorm
from layernorm.lab.experiments import get, report, run
from layernorm.lab.experiments.transformer import untrained, without
from layernorm.lab.experiments.transformer.task import looked_at

FEW = {"updates": 3, "evaluations": 1, "held_out": 4, "depth": 2}


@pytest.fixture(scope="module")
def few():
    return without.trained("layer", 0, **FEW)


def test_gradients_are_those_of_the_loss_at_the_embeddings_and_at_the_end():
    found = without.amplified("dyt/much", 3, 1)
    model, text = untrained.build("dyt/much", 3, 1)
    moved = [torch.zeros(4, 16, 48, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    x = model.embed(text) + moved[0]
    first = x
    for branch in model.branches:
        x = branch(x)
    last = x + moved[1]
    loss = cross_entropy(model.output(model.norm(last)).flatten(0, 1), text.roll(-1, 1).flatten())
    loss.backward()
    ratio = moved[0].grad.norm() / moved[1].grad.norm()
    assert found["gradient"] == pytest.approx(ratio.item(), rel=1e-9)
    assert found["stream"] == pytest.approx((last.var() / first.var()).item(), rel=1e-9)


def test_over_depth_has_a_row_a_seed_and_a_column_a_depth():
    found = without.over_depth("layer", (1, 2), (3, 4, 5))
    assert {name: values.shape for name, values in found.items()} == {
        "gradient": (3, 2), "stream": (3, 2)}  # fmt: skip
    assert found["stream"][2, 1] == without.amplified("layer", 2, 5)["stream"]


def test_the_rescaled_control_keeps_the_stream_level():
    plain, control = (without.amplified("none", 12, 0, rescaled=r)["stream"] for r in (False, True))
    assert 1.5 < control < 2.5 < 100 < plain


def test_growth_tells_powers_roots_and_exponentials_apart():
    depths = np.array([[4.0, 16.0, 64.0]])
    for values, ratio in ((depths**0.7, 1), (np.exp(np.sqrt(depths)), 2), (np.exp(depths / 9), 4)):
        first, second = without.growth(values)
        assert second[0] / first[0] == pytest.approx(ratio)


def test_small_embeddings_leave_the_slope_alone():
    near, far = (without.apart("dyt/much", std, 0.5, 0) for std in (1e-3, 1.0))
    assert near < 1e-5 < 0.1 < far
    assert without.apart("dyt/much", 1e-3, 0.6, 0) > 0.05


def test_a_trained_network_is_that_of_a_run(few):
    config = get("transformer").config("book", "layer", 0, learning_rate=without.RATE, **FEW)
    record = run.train(config, device="cpu", save=False)
    assert without.nll(few.task, few.model) == record.result["final"]["test_nll"]
    start = without.trained("layer", 0, until=0, **FEW)
    assert record.result["curves"]["test_nll"]["value"][0] == without.nll(start.task, start.model)


def test_what_is_flat_is_counted_for_every_curve():
    start = without.trained("dyt/much", 0, until=0, **FEW)
    shares = without.saturated(start)
    assert len(shares) == 2 * 2 + 1
    window = start.task.parts["validation"][: without.LOOKED_AT]
    assert math.fsum(shares[:-1]) / 4 == pytest.approx(looked_at(start.model, window)["saturated"])
    with torch.no_grad():
        for _, curve in without.norms(start.model):
            curve.alpha.fill_(1e4)
    assert min(without.saturated(start)) > 0.95


def test_the_stream_grows_as_looked_at_says(few):
    window = few.task.parts["validation"][: without.LOOKED_AT]
    assert without.grown(few) == looked_at(few.model, window)["stream"]


def test_a_frozen_norm_is_linear_and_that_of_a_token_with_this_sigma(few):
    model, text = few.model, without.seen(few)
    found = without.sigmas(model, text)
    norm = model.branches[0].norm
    x = model.embed(text)[:1, :5].detach()
    own = (x.var(-1, correction=0) + norm.eps).sqrt()
    for i in range(5):
        frozen = without.Frozen(norm, own[0, i].item())
        torch.testing.assert_close(frozen(x)[0, i], norm(x)[0, i], rtol=1e-4, atol=1e-5)
    both = model.embed(text).detach()
    mean = (both.var(-1, correction=0).mean() + norm.eps).sqrt().item()
    assert found[0] == pytest.approx(mean, rel=1e-5)
    one, two = both[0, 0], both[1, 3]
    frozen = without.Frozen(norm, mean)
    torch.testing.assert_close(frozen((one + two) / 2), (frozen(one) + frozen(two)) / 2)


def test_only_the_norms_that_are_named_are_frozen(few):
    model, text = few.model, without.seen(few)
    before = copy.deepcopy(model.state_dict())
    one, all_of_them = without.frozen(model, text, [1, 4]), without.frozen(model, text)
    kinds = [isinstance(norm, without.Frozen) for _, norm in without.norms(one)]
    assert kinds == [False, True, False, False, True]
    assert all(isinstance(norm, without.Frozen) for _, norm in without.norms(all_of_them))
    assert not any(isinstance(norm, without.Frozen) for _, norm in without.norms(model))
    assert without.nll(few.task, without.frozen(model, text, [])) == without.nll(few.task, model)
    assert without.nll(few.task, all_of_them) != without.nll(few.task, model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_frozen_norm_folds_into_a_matrix():
    torch.manual_seed(0)
    norm, linear, x = layernorm.LayerNorm(7), nn.Linear(7, 3, bias=False), torch.randn(5, 7) + 3
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    weight, bias = without.folded(linear.weight, norm.weight, norm.bias, 0.6)
    torch.testing.assert_close(x @ weight.T + bias, linear(without.Frozen(norm, 0.6)(x)))


def test_tuning_on_changes_a_model_in_its_place_and_leaves_the_task_with_its_own(few):
    whole, model = few.task.model, copy.deepcopy(few.model)
    before = without.nll(few.task, model)
    after = without.tuned(few.task, model, updates=5)
    assert few.task.model is whole
    assert after != before
    assert after == without.nll(few.task, model)
    again = copy.deepcopy(whole)
    assert without.tuned(few.task, again, updates=5) == after


def test_the_box_has_the_numbers_of_the_plan():
    plan = without.plan()
    shown = report.box(plan, "dyt/little")["here"]
    options = plan.config("data", "dyt/little", 0).options
    assert f"{options.depth} blocks of {options.hidden} units" in shown["setup"]
    assert shown["updates"] == f"{options.updates:,}"
    assert set(plan.original.rows) <= {row.name for row in plan.compared("data").rows}
    assert "10,000" in shown["data"]
    assert options.characters == 10_000
