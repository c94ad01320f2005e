"""Order-embeddings: equations computed by hand, padding without any effect, where arms start,
Recall@K and ranks worked out by hand, ties included."""

import math

import pytest
import torch
from lab.experiments.ordering import made
from torch import nn
from torch.nn.functional import normalize

from layernorm.lab.data import captions
from layernorm.lab.experiments.order_embeddings import model, ranking
from layernorm.recurrent import LayerNormGRU

# Energies and ranks


def test_order_violation_by_hand():
    s = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    v = torch.tensor([[0.5, 3.0, 0.0], [0.0, 0.0, 3.0]])
    expected = [[0.25, 5.0], [1.0, 0.0]]  # (1 - 0.5)²; 1² + 2²; 1²; nothing asked that is not there
    assert ranking.order_violation(s, v).tolist() == expected
    assert ranking.many_violations(s, v).tolist() == expected


def test_many_violations_are_the_same_in_blocks(monkeypatch):
    monkeypatch.setattr(ranking, "BLOCK", 3)
    s, v = torch.randn(7, 5).double(), torch.randn(4, 5).double()
    torch.testing.assert_close(ranking.many_violations(s, v), ranking.order_violation(s, v))


def test_an_order_is_reflexive_antisymmetric_and_transitive():
    """Zero violation is the order of all coordinates: where a ≤ b ≤ c, a violates nothing of c."""
    a = torch.rand(20, 6)
    b, c = a + torch.rand(20, 6), a + 1.0 + torch.rand(20, 6)
    for low, high in ((a, a), (a, b), (b, c.maximum(b)), (a, c.maximum(b))):
        assert (ranking.order_violation(low, high).diagonal() == 0).all()
    assert (ranking.order_violation(b, a).diagonal() > 0).all()


def energies(right, wrong=1.0):
    """Three images; the energies of own captions are given, all others are the same."""
    energy = torch.full((15, 3), wrong)
    for caption, value in right.items():
        energy[caption, caption // 5] = value
    return energy


def test_ranks_by_hand():
    """Image 0 has its third caption best; image 1 none that is better than ten others, image 2 is
    better than them with one."""
    right = dict.fromkeys(range(15), 2.0) | {2: 0.5, 14: 0.0}
    of_images, of_captions = ranking.ranks(energies(right))
    assert of_images.tolist() == [0, 10, 0]
    assert of_captions.tolist() == [2, 2, 0, 2, 2, *[2] * 5, *[2] * 4, 0]


def test_an_images_other_captions_are_no_wrong_candidates():
    right = {i: 0.9 - 0.1 * (i % 5) for i in range(15)}
    assert ranking.ranks(energies(right))[0].tolist() == [0, 0, 0]


def test_ties_count_against():
    """All energies alike: every wrong candidate comes first."""
    of_images, of_captions = ranking.ranks(torch.zeros(15, 3))
    assert of_images.tolist() == [10, 10, 10]
    assert of_captions.tolist() == [2] * 15
    found = ranking.scores(torch.zeros(15, 3))
    assert found["caption_r10"] == 0.0  # not 100, as with ties broken by place
    assert (found["caption_rank"], found["image_rank"]) == (11.0, 3.0)


def test_what_is_not_a_number_fits_nothing():
    energy = energies(dict.fromkeys(range(15), math.nan))
    assert ranking.ranks(energy)[1].tolist() == [2] * 15


def test_scores_by_hand():
    """9 of 15 captions find their image first, 6 as the third and last; of three images one has a
    caption first, one at rank 1 and one at rank 6."""
    energy = energies({i: 0.0 if i < 9 else 2.0 for i in range(15)})
    ranks = torch.tensor([0, 1, 6])
    assert ranking.recall(ranks, 1) == pytest.approx(100 / 3)
    assert ranking.recall(ranks, 5) == pytest.approx(200 / 3)
    assert ranking.recall(ranks, 7) == 100.0
    found = ranking.scores(energy)
    assert found["image_r1"] == 60.0
    assert found["image_r5"] == found["image_r10"] == 100.0
    assert found["image_rank"] == pytest.approx((9 * 1 + 6 * 3) / 15)
    assert (
        found["caption_r1"] == found["caption_r5"] == found["caption_r10"] == pytest.approx(200 / 3)
    )
    assert found["caption_rank"] == pytest.approx((1 + 1 + 11) / 3)
    assert found["missed"] == pytest.approx(100 - (60 + 100 + 100 + 200) / 6)


def test_ranks_against_sorting():
    energy = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    of_images, of_captions = ranking.ranks(energy)
    for caption, row in enumerate(energy.argsort(1).tolist()):
        assert row.index(caption // 5) == of_captions[caption]
    for image, column in enumerate(energy.T.argsort(1).tolist()):
        first = next(i for i, caption in enumerate(column) if caption // 5 == image)
        assert first == of_images[image]


# Model and loss


@pytest.mark.parametrize("arm", ["none", "layer", "none/symmetric"])
def test_the_equations(arm):
    task = made(arm)
    net, part = task.model.double(), task.data.validation
    words, lengths = part.told(torch.arange(10))
    s = net.captions(words, lengths)
    f = part.features(slice(0, 2)).double()
    v = net.images(f)
    for i in range(10):
        h = net.gru(net.words(words[i, : lengths[i]]))[0][-1]
        expected = h / h.square().sum().sqrt()
        torch.testing.assert_close(s[i], expected if "sym" in arm else expected.abs())
    wf = f @ net.image.weight.T
    expected = wf / wf.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(v, expected if "sym" in arm else expected.abs())
    energy = net.energy(s, v)
    by_hand = -s @ v.T if "sym" in arm else (s[:, None] - v).clamp(min=0).square().sum(2)
    torch.testing.assert_close(energy, by_hand)
    torch.testing.assert_close(net.energy(s, v, many=True), by_hand)


def test_the_loss_by_hand():
    """m = 0.5. Caption 0 with image 1: 0.5 + 0.1 - 0.4; image 0 with caption 1: 0.5 + 0.1 - 0.9 is
    below 0; caption 1 with image 0: 0.5 + 0.2 - 0.9 too; image 1 with caption 0: 0.5 + 0.2 - 0.4.
    """
    energy = torch.tensor([[0.1, 0.4], [0.9, 0.2]], requires_grad=True)
    loss = model.pair_loss(energy, 0.5)
    assert loss.item() == pytest.approx(0.2 + 0.3)
    loss.backward()
    assert energy.grad.tolist() == [[1.0, -2.0], [0.0, 1.0]]


def test_the_loss_of_unrelated_embeddings_is_the_margin_for_each_wrong_pair():
    r"""For half-normal a, b the mean of max(0, a - b)² is half that of (a - b)², so
    1 - 2/π. Its variance is at most half the mean of (a - b)⁴, (12 - 32/π)/2 = 0.91; with what the
    lengths add, a deviation below 1.2/sqrt(D) of E. So all energies are alike, and the 2 n (n - 1)
    terms of the loss have the mean m, but for what the n right energies leave to chance."""
    n, d, m = 40, 10_000, 0.05
    made = torch.Generator().manual_seed(0)
    s, v = (normalize(torch.randn(n, d, generator=made).abs(), dim=1) for _ in range(2))
    energy = ranking.order_violation(s, v)
    deviation = 1.2 / math.sqrt(d)
    assert (energy - (1 - 2 / math.pi)).abs().max() < 6 * deviation
    assert abs(model.pair_loss(energy, m).item() / (2 * n * (n - 1)) - m) < 2 * deviation


@pytest.mark.parametrize("arm", ["none", "layer", "rescaled"])
def test_an_untrained_model_has_at_least_the_loss_of_unrelated_pairs(arm):
    """The hinge is convex, so the mean of its terms is at least the hinge of their mean: the margin
    plus the right pairs' energy less the wrong ones', which before training differ by what
    sixty-four pairs leave to chance."""
    task = made(arm, scenes=200, batch_size=64, hidden=64)
    images, rows = task.batch(1)
    s = task.model.captions(*task.train.told(rows))
    energy = task.model.energy(s, task.model.images(task.train.features(images)))
    n, m = len(energy), task.margin
    wrong = energy.masked_select(~torch.eye(n, dtype=torch.bool))
    right = energy.diagonal()
    loss = task.loss(1).item() / (2 * n * (n - 1))
    assert loss >= m + (right.mean() - wrong.mean()).item() - 1e-6
    assert abs(right.mean() - wrong.mean()) < 5 * wrong.std() / math.sqrt(n)
    assert loss < m + right.std().item() + wrong.std().item() + abs(right.mean() - wrong.mean())


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_padding_changes_nothing_and_learns_nothing(arm):
    task = made(arm)
    words, lengths = task.data.validation.told(torch.arange(20))
    assert (words == captions.PAD).any()
    other = words.masked_fill(words == captions.PAD, 5)
    s, again = task.model.captions(words, lengths), task.model.captions(other, lengths)
    assert torch.equal(s, again)
    s[:, 0].sum().backward()
    assert (task.model.words.weight.grad[captions.PAD] == 0).all()


@pytest.mark.parametrize("arm", ["none", "layer"])
def test_captions_read_in_sorted_chunks_are_the_captions_in_their_order(arm, monkeypatch):
    monkeypatch.setattr(model, "CHUNK", 7)
    task = made(arm)
    part = task.data.validation
    s = task.model.captions(part.words, part.lengths)
    torch.testing.assert_close(task.embedded(part), s.detach())


def test_all_arms_of_a_seed_start_from_the_same_weights():
    base = dict(made("none").model.named_parameters())
    for arm in ("layer", "none/symmetric"):
        there = dict(made(arm).model.named_parameters())
        shared = base.keys() & there.keys()
        assert {"words.weight", "image.weight", "gru.weight_ih_l0", "gru.weight_hh_l0"} <= shared
        for name in shared:
            assert torch.equal(base[name], there[name]), (arm, name)
    layer = made("layer").model.gru
    assert type(layer) is LayerNormGRU
    assert type(made("none").model.gru) is nn.GRU
    for term in ("ih", "hh"):
        assert (getattr(layer, f"ln_{term}_weight_l0") == 1).all()
    assert (layer.bias_ih_l0 == 0).all()


def test_words_and_weights_start_as_in_the_code_of_the_paper():
    net = made("none", hidden=64, embedding=32).model
    for weight in (net.words.weight, net.gru.weight_ih_l0):
        assert weight.abs().max() <= 0.1
        assert weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    for gate in net.gru.weight_hh_l0.chunk(3):
        torch.testing.assert_close(gate @ gate.T, torch.eye(64), atol=1e-5, rtol=0)
    for bias in (net.gru.bias_ih_l0, net.gru.bias_hh_l0):
        assert (bias == 0).all()


def test_the_control_starts_with_unit_variance():
    task = made("rescaled", hidden=64, embedding=32)
    net, part = task.model, task.train
    words, lengths = part.told(captions.EACH * torch.arange(len(part)))
    x = net.words(words[:, : int(lengths.min())].T)
    assert net.words.weight.std().item() == pytest.approx(1, rel=1e-3)
    assert (x @ net.gru.weight_ih_l0.T).std().item() == pytest.approx(1, rel=1e-3)
    assert (net.gru(x)[0] @ net.gru.weight_hh_l0.T).std().item() == pytest.approx(1, rel=0.02)
    plain = made("none", hidden=64, embedding=32).model
    assert torch.equal(net.image.weight, plain.image.weight)
    assert not torch.allclose(net.gru.weight_hh_l0, plain.gru.weight_hh_l0)
