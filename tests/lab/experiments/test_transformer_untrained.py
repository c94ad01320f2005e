"""Measurements in untrained transformers, against direct computations and geometry."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull
from torch.nn.functional import cross_entropy

from layernorm import functional
from layernorm.lab.experiments.transformer import untrained as transformers


def test_measured_gradients_are_those_of_the_loss():
    found = transformers.measured("layer", 3, 1)
    model, text = transformers.build("layer", 3, 1)
    loss = cross_entropy(model(text).flatten(0, 1), torch.roll(text, -1, 1).flatten())
    loss.backward()
    blocks = model.branches
    assert found["last"] == pytest.approx(blocks[5].f.out.weight.grad.norm().item(), rel=1e-9)
    assert found["first"] == pytest.approx(blocks[1].f.out.weight.grad.norm().item(), rel=1e-9)
    assert found["stream"] == pytest.approx(list(model.stream(text))[-1].var().item(), rel=1e-9)


def test_networks_depend_on_their_seed_alone():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = transformers.measured("post", 2, 0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    assert transformers.measured("post", 2, 0) == first
    assert transformers.measured("post", 2, 1) != first


def test_over_depth_has_a_row_a_seed_and_a_column_a_depth():
    found = transformers.over_depth("rms", depths=(1, 2, 4), seeds=(5, 6))
    assert {name: values.shape for name, values in found.items()} == {
        "last": (2, 3), "first": (2, 3), "stream": (2, 3)}  # fmt: skip
    assert found["last"][1, 2] == transformers.measured("rms", 4, 6)["last"]


def test_the_exponent_is_that_of_a_power():
    depths = np.array([2, 4, 8, 16])
    noise = np.exp([[0.1, -0.1, -0.1, 0.1]])  # even about the fitted line
    found = transformers.exponents(3 / np.sqrt(depths) * noise, depths.tolist())
    assert found.tolist() == pytest.approx([-0.5], abs=1e-9)


def test_unselectable_keys_are_those_inside_the_hull():
    generator = torch.Generator().manual_seed(0)
    for units in (2, 3):
        keys = torch.randn(20, units, generator=generator, dtype=torch.float64)
        corners = set(ConvexHull(keys.numpy()).vertices.tolist())
        inside = transformers.unselectable(keys)
        assert inside.tolist() == [i not in corners for i in range(20)]
        assert inside.any()
        torch.testing.assert_close(transformers.unselectable(1e-3 * keys), inside)


def test_a_selectable_key_is_selected_by_some_query():
    keys = transformers.keys(lambda x: functional.layer_norm(x, (4,), eps=0.0), count=12)
    assert not transformers.unselectable(keys).any()
    states = transformers.keys(lambda x: x, count=40)
    queries = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(0)).double()
    chosen = set((queries @ states.T).argmax(1).tolist())
    lost = transformers.unselectable(states)
    assert lost.any()
    assert chosen.isdisjoint(i for i in range(40) if lost[i])


def test_larger_matrices_reach_the_stream_and_the_logits():
    one, ten = (transformers.logits("layer", scale) for scale in (1.0, 10.0))
    assert 50 * one < ten
    assert transformers.largest("layer", 10.0, depth=2) > 20 * transformers.largest("layer", 1.0, 2)
    rows = 2 * 3 * math.sqrt(transformers.SMALL["hidden"]) + 5  # terms, and the embeddings
    assert transformers.largest("peri", 1e6, depth=3) < rows


def test_decay_and_a_growing_rate_give_one_direction_and_a_constant_rate_another(monkeypatch):
    one, two = transformers.decayed(40, 0.01, 1.0)
    torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    assert one.norm().item() == pytest.approx(1)
    monkeypatch.setattr(transformers, "growing", lambda rate, decay, t: rate)
    assert (transformers.decayed(40, 0.01, 1.0)[1] - one).abs().max() > 1e-4
