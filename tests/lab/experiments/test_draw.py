"""DRAW: filterbanks against a direct sum, its equations step by step, the KL divergence and the two
bounds against what they stand for, where its arms start, and the level that updates are counted to.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Independent, Normal, kl_divergence

from layernorm.functional import ln_lstm_step
from layernorm.lab.data.binarized import binarized
from layernorm.lab.experiments import get
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.draw import model as task
from layernorm.lab.experiments.draw import plan
from layernorm.lab.experiments.run import Trainer, train
from layernorm.recurrent import LayerNormLSTM

CPU = torch.device("cpu")
EXPERIMENT = get("draw")
SIZES = {"hidden": 12, "glimpses": 3, "latent": 4, "read": 3, "write": 4, "batch_size": 16}
SMALL = {**SIZES, "held_out": 20, "updates": 4, "evaluations": 1, "samples": 4, "weighted": 10}
ARMS = ("none", "layer", "layer/full")


def options(arm="none", **changes):
    return EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options


def made(arm="none", **changes):
    with seeded(0, CPU):
        return task.Drawer(options(arm, **changes), 0, CPU)


def drawer(arm="none", size=7, **changes):
    """A model in float64 whose biases and gains are not where they start."""
    with seeded(0, CPU):
        model = task.Draw(options(arm, **changes), size).double()
        for name, parameter in model.named_parameters():
            if "bias" in name or "ln_" in name:
                nn.init.uniform_(parameter, 0.2, 0.9)
    return model


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def pictures(n=5, size=7, seed=0):
    return (normal(n, size, size, seed=seed) > 0.5).double()


# Windows


def direct(parameters, size, points):
    """Both filterbanks of one window, number by number, as Gregor et al. write them: positions are
    counted from 1, and each row is divided by its sum."""
    g_y, g_x, log_variance, log_stride, _ = parameters.tolist()
    stride = math.exp(log_stride) * (size - 1) / (points - 1)
    banks = []
    for g in (g_y, g_x):
        middle = (size + 1) / 2 * (g + 1)
        bank = []
        for i in range(1, points + 1):
            mu = middle + (i - points / 2 - 0.5) * stride
            row = [
                math.exp(-((a - mu) ** 2) / (2 * math.exp(log_variance)))
                for a in range(1, size + 1)
            ]
            bank.append([value / sum(row) for value in row])
        banks.append(bank)
    return torch.tensor(banks, dtype=torch.float64)


@pytest.mark.parametrize(("size", "points"), [(7, 3), (16, 5), (9, 2), (5, 8)])
def test_the_filterbanks_are_those_of_a_direct_sum(size, points):
    parameters = 0.4 * normal(20, 5)
    found = task.window(parameters, size, points)
    for case in range(20):
        expected = direct(parameters[case], size, points)
        torch.testing.assert_close(found.y[case], expected[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.x[case], expected[1], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.intensity, parameters[:, 4].exp())


def test_a_window_at_rest_covers_the_picture_and_its_ends_are_just_outside():
    at_rest = task.window(torch.zeros(1, 5), 16, 4)
    assert at_rest.centers[0].tolist() == [[0.0, 5.0, 10.0, 15.0]] * 2
    corners = torch.tensor([[-1.0, 1.0, 0.0, 0.0, 0.0]])
    assert task.window(corners, 16, 3).centers[0, :, 1].tolist() == [-1.0, 16.0]


@pytest.mark.parametrize("place", [0.0, 1.0, -3.0, 1e3, -1e6])
@pytest.mark.parametrize("log", [0.0, 5.0, -5.0, 30.0, -1e4])
def test_rows_sum_to_1_and_gradients_are_finite_wherever_a_window_is(place, log):
    """In float32: far outside a direct sum of exponentials is 0, and a row 0/0."""
    parameters = torch.tensor([[place, -place / 2, log, log, log]], requires_grad=True)
    found = task.window(parameters, 28, 5)
    for bank in (found.y, found.x):
        torch.testing.assert_close(bank.sum(-1), torch.ones(1, 5))
    x = pictures(1, 28).float()
    patch = task.read(found, x, x - 0.5)
    picture = task.write(found, torch.ones(1, 5, 5))
    (patch.square().mean() + picture.square().mean()).backward()
    assert parameters.grad.isfinite().all()


def test_reading_and_writing_are_direct_sums():
    size, points = 6, 3
    through = task.window(0.3 * normal(2, 5), size, points)
    x, error, w = pictures(2, size), normal(2, size, size), normal(2, points, points)
    patch, picture = task.read(through, x, error), task.write(through, w)
    for case in range(2):
        y_rows, x_rows, gain = through.y[case], through.x[case], through.intensity[case]
        expected = [
            gain * sum(y_rows[i, a] * x_rows[j, b] * image[case, a, b]
                       for a in range(size) for b in range(size))
            for i in range(points) for image in (x, error) for j in range(points)
        ]  # fmt: skip
        torch.testing.assert_close(patch[case], torch.stack(expected))
        for a in range(size):
            for b in range(size):
                value = sum(y_rows[i, a] * x_rows[j, b] * w[case, i, j]
                            for i in range(points) for j in range(points))  # fmt: skip
                torch.testing.assert_close(picture[case, a, b], value / gain)


def test_a_narrow_window_reads_the_pixels_it_stands_on():
    x = pictures(1, 9)
    log_stride = math.log(1 / 4)  # a pixel, of (9 - 1)/(3 - 1)
    parameters = torch.tensor([[0.2, -0.4, -9.0, log_stride, 0.0]]).double()  # on (5, 2)
    through = task.window(parameters, 9, 3)
    patch = task.read(through, x, torch.zeros_like(x)).unflatten(1, (3, 2, 3))[0, :, 0]
    torch.testing.assert_close(patch, x[0, 4:7, 1:4])


# The model


def step(cell, x, h, c):
    """One step of a cell's LSTM by its formulas."""
    if isinstance(cell, nn.LSTMCell):
        weights, norms, bias = (cell.weight_ih, cell.weight_hh), None, cell.bias_ih + cell.bias_hh
    else:
        weights, bias = (cell.weight_ih_l0, cell.weight_hh_l0), cell.bias_ih_l0
        terms = ("ih", "hh", "c") if cell.variant == "paper" else ("c",)
        names = [(f"ln_{term}_weight_l0", f"ln_{term}_bias_l0") for term in terms]
        norms = [tuple(getattr(cell, name) for name in pair) for pair in names]
    if norms and len(norms) == 3:
        return ln_lstm_step(x, h, c, *weights, bias, *norms)
    i, f, g, o = (x @ weights[0].T + h @ weights[1].T + bias).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    shown = c if not norms else nn.functional.layer_norm(c, c.shape[-1:], *norms[0])  # eq. 31
    return o.sigmoid() * shown.tanh(), c


@pytest.mark.parametrize("arm", ARMS)
def test_the_equations_glimpse_by_glimpse(arm):
    model, x, noise = drawer(arm), pictures(), normal(3, 5, 4, seed=1)
    found = model(noise, x)
    zero = torch.zeros(5, 12).double()
    encoded, decoded, canvas = (zero, zero), (zero, zero), torch.zeros_like(x)
    for t in range(3):
        looked = task.window(model.read_window(decoded[0]), 7, 3)
        patch = task.read(looked, x, x - 1 / (1 + (-canvas).exp()))
        encoded = step(model.encoder.cell, torch.cat([patch, decoded[0]], 1), *encoded)
        numbers = model.posterior(encoded[0])
        mean, log_std = numbers[:, :4], numbers[:, 4:]
        decoded = step(model.decoder.cell, mean + log_std.exp() * noise[t], *decoded)
        written = task.window(model.write_window(decoded[0]), 7, 4)
        canvas = canvas + task.write(written, model.patch(decoded[0]).reshape(5, 4, 4))
        for mine, theirs in (
            (found.mean[t], mean),
            (found.log_std[t], log_std),
            (found.canvases[t], canvas),
            (found.looked[t].x, looked.x),
            (found.written[t].y, written.y),
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("arm", ARMS)
def test_generating_is_decoding_without_the_encoder(arm):
    """From the samples that the encoder had drawn, the same canvases; and no gradient for it."""
    model, x, noise = drawer(arm), pictures(), normal(3, 5, 4, seed=1)
    drawn = model(noise, x)
    z = (drawn.mean + drawn.log_std.exp() * noise).detach()
    again = model(z)
    torch.testing.assert_close(again.canvases, drawn.canvases)
    assert again.mean is None
    again.canvases.sum().backward()
    blind = [model.encoder, model.posterior, model.read_window]
    assert all(p.grad is None for module in blind for p in module.parameters())
    assert model.write_window.weight.grad.abs().max() > 0


def test_pictures_do_not_depend_on_each_other():
    for arm in ARMS:
        model, x, noise = drawer(arm), pictures(), normal(3, 5, 4, seed=1)
        alone = model(noise[:, 2:3], x[2:3]).canvases
        torch.testing.assert_close(model(noise, x).canvases[:, 2:3], alone, rtol=1e-9, atol=1e-11)


def test_the_same_seed_draws_the_same_samples_and_another_one_others():
    runs = [Trainer(EXPERIMENT, EXPERIMENT.config("book", "layer", seed, **SMALL), CPU)
            for seed in (0, 0, 1)]  # fmt: skip
    for run in runs:
        run.update(1)
    made = [run.model(run.task.noise(3, generator(7))).canvases for run in runs[:1]]
    again = runs[0].model(runs[0].task.noise(3, generator(7))).canvases
    other = runs[0].model(runs[0].task.noise(3, generator(8))).canvases
    assert torch.equal(made[0], again)
    assert not torch.equal(made[0], other)
    results = [train(EXPERIMENT.config("book", "layer", s, **SMALL), save=False).result
               for s in (3, 3, 4)]  # fmt: skip
    assert results[0] == results[1]
    assert results[0]["final"]["weighted_bound"] != results[2]["final"]["weighted_bound"]


# The loss


def test_kl_is_the_closed_form_and_what_samples_say():
    mean, log_std = normal(6, 3), 0.5 * normal(6, 3, seed=1)
    found = task.divergence(mean, log_std)
    prior, posterior = Normal(0.0, 1.0), Normal(mean, log_std.exp())
    torch.testing.assert_close(found, kl_divergence(posterior, prior).sum(-1))
    count = 40_000
    z = mean + log_std.exp() * normal(count, 6, 3, seed=2)
    each = (posterior.log_prob(z) - prior.log_prob(z)).sum(-1)
    error = each.std(0) / math.sqrt(count)
    assert ((each.mean(0) - found).abs() <= 6 * error).all()
    assert (task.divergence(torch.zeros(2, 3), torch.zeros(2, 3)) == 0).all()


def test_the_reconstruction_loss_is_that_of_bernoulli_pixels():
    x, canvas = pictures(), 3 * normal(5, 7, 7, seed=1)
    expected = -Independent(Bernoulli(logits=canvas), 2).log_prob(x)
    torch.testing.assert_close(task.reconstruction(canvas, x), expected)
    assert task.reconstruction(torch.zeros(1, 7, 7), x[:1].float()).item() == pytest.approx(
        49 * math.log(2), rel=1e-6
    )


def test_log_weights_are_the_joint_over_the_posterior_and_their_mean_is_the_bound():
    model, x, count = drawer("layer"), pictures(1), 20_000
    noise = normal(3, count, 4, seed=1)
    drawn = model(noise, x.expand(count, -1, -1))
    found = task.log_weights(drawn, noise, x.expand(count, -1, -1))
    z = drawn.mean + drawn.log_std.exp() * noise
    joint = Normal(0.0, 1.0).log_prob(z).sum((0, 2))
    joint -= task.reconstruction(drawn.canvases[-1], x.expand(count, -1, -1))
    posterior = Normal(drawn.mean, drawn.log_std.exp()).log_prob(z).sum((0, 2))
    torch.testing.assert_close(found, joint - posterior)
    kl = task.divergence(drawn.mean, drawn.log_std).sum(0)
    closed = task.reconstruction(drawn.canvases[-1], x.expand(count, -1, -1)) + kl
    gap = closed + found  # mean 0: only KL's closed form and its sample differ
    assert abs(gap.mean()) <= 6 * gap.std() / math.sqrt(count)
    assert gap.std() > 0.1


def test_both_bounds_by_hand_and_the_weighted_one_is_never_above_the_other():
    weights = torch.tensor([[-10.0, -7.0], [-10.0, -9.0]]).double()
    found = task.bounds(weights)
    assert found["sampled_bound"] == pytest.approx(9.0)
    assert found["sampled_bound_error"] == pytest.approx(0.5)  # of 8.5 and 9.5
    mean = (math.exp(-7) + math.exp(-9)) / 2
    assert found["weighted_bound"] == pytest.approx((10 - math.log(mean)) / 2)
    for seed in range(20):
        drawn = task.bounds(-80 + 3 * normal(8, 30, seed=seed))
        assert drawn["weighted_bound"] < drawn["sampled_bound"]
    assert math.isnan(task.bounds(weights[:1])["sampled_bound_error"])


@pytest.mark.parametrize("arm", ARMS)
def test_a_run_measures_both_bounds_and_the_kl_of_each_glimpse(arm):
    final = train(EXPERIMENT.config("book", arm, 0, **SMALL), save=False).result["final"]
    assert final["weighted_bound"] < final["sampled_bound"]
    steps = [final[f"test_kl_{t}"] for t in (1, 2, 3)]
    assert sum(steps) == pytest.approx(final["test_kl"], rel=1e-9)
    trivial = task.marginal_bound("digits", 20)
    assert final["share_of_pixels"] == pytest.approx(final["test_bound"] / trivial)


def test_the_trivial_baseline_draws_each_pixel_as_often_as_it_is_set():
    there = binarized("digits")
    share = (there.train.double().sum(0) + 1) / (len(there.train) + 2)
    x = task.spaced(there.test, 50).double()
    expected = -(x * share.log() + (1 - x) * (1 - share).log()).sum((1, 2)).mean()
    assert task.marginal_bound("digits", 50) == pytest.approx(float(expected))


def test_held_out_pictures_are_spread_over_the_file():
    numbers = torch.arange(10, dtype=torch.uint8)[:, None, None]
    assert task.spaced(numbers, 3).flatten().tolist() == [0, 3, 6]
    assert task.spaced(numbers, 10).flatten().tolist() == list(range(10))
    with pytest.raises(ValueError, match="held_out must be at most 10, got 11"):
        task.spaced(numbers, 11)


# The arms


def test_all_arms_of_a_seed_start_from_the_same_weights():
    models = {arm: made(arm).model for arm in ARMS}
    for arm in ARMS[1:]:
        for part in ("posterior", "patch", "read_window", "write_window"):
            one, two = (models[a].get_submodule(part).weight for a in ("none", arm))
            assert torch.equal(one, two), (arm, part)
        for part in ("encoder", "decoder"):
            plain, layer = (models[a].get_submodule(part).cell for a in ("none", arm))
            assert isinstance(layer, LayerNormLSTM)
            assert layer.variant == ("paper" if arm == "layer/full" else "cell_only")
            assert torch.equal(plain.weight_ih, layer.weight_ih_l0)
            assert torch.equal(plain.weight_hh, layer.weight_hh_l0)
            assert (plain.bias_ih == 0).all()
            assert (plain.bias_hh == 0).all()
            assert (layer.bias_ih_l0 == 0).all()


def test_small_weights_are_small_and_gains_stay_at_1():
    for arm in ("none/small", "layer/small"):
        model = made(arm, hidden=40).model
        for name, parameter in model.named_parameters():
            if "ln_" in name and "weight" in name:
                assert (parameter == 1).all()
            elif "weight" in name:
                share = parameter.std().item() / 0.01
                assert abs(share - 1) < 6 / math.sqrt(2 * parameter.numel()), name
            else:
                assert (parameter == 0).all(), name


def test_the_controls_terms_start_with_unit_variance():
    control = made("rescaled", hidden=32)
    x = control.x[: task.SCALED_ON].float()
    noise = control.noise(len(x), generator(0, 0))
    seen = {"encoder": [], "decoder": []}
    for name, calls in seen.items():
        cell = control.model.get_submodule(name).cell
        cell.register_forward_pre_hook(lambda _, args, calls=calls: calls.append(args))
    control.model(noise, x)
    for name, calls in seen.items():
        cell = control.model.get_submodule(name).cell
        inputs = torch.cat([given @ cell.weight_ih.T for given, _ in calls])
        states = torch.cat([h @ cell.weight_hh.T for _, (h, _) in calls[1:]])
        assert inputs.std().item() == pytest.approx(1, rel=0.011)
        assert states.std().item() == pytest.approx(1, rel=0.011)
        assert len(calls) == 3


def test_it_learns_a_handful_by_heart():
    """Four digits cost log 4 = 1.4 nats to tell apart, at least; pixels drawn one by one 60."""
    few = {"examples": 4, "batch_size": 4, "updates": 250, "evaluations": 1, "hidden": 48,
           "glimpses": 3, "read": 4, "write": 8, "learning_rate": 0.01, "held_out": 20}  # fmt: skip
    for arm in ("none", "layer"):
        final = train(EXPERIMENT.config("book", arm, 0, **few), save=False).result["final"]
        assert final["train_bound"] < 20, arm
        assert final["validation_bound"] > 60, arm


# The plan


def frame(curves):
    """A table of runs of one arm: validation bounds at steps 0, 10, 20, ..."""
    rows = [("a", seed, "validation_bound", 10.0 * n, value)
            for seed, curve in curves.items() for n, value in enumerate(curve)]  # fmt: skip
    return pd.DataFrame(rows, columns=["arm", "seed", "metric", "step", "value"])


def test_updates_to_a_level_by_hand():
    runs = {0: [9, 5, 3, 4], 1: [9, 8, 7, 6], 2: [4, 3, 2, 1], 3: [9, 8, 4, 2]}
    found = plan.updates_to(lambda: 4.0)(frame(runs), "a", ("a",))
    assert found.to_dict() == pytest.approx({0: 15.0, 1: 30.0, 2: 0.0, 3: 20.0})
    more = {**runs, 4: [9, 9, 9, 9]}
    assert plan.updates_to(lambda: 4.0)(frame(more), "a", ("a",)).isna().all()


def test_the_level_is_where_tuned_runs_of_none_end(monkeypatch):
    class Run:
        def __init__(self, arm, rate, mean, end):
            self.config = {"arm": arm, "options": {"learning_rate": rate}}
            self.result = {"final": {"mean_validation_bound": mean, "validation_bound": end}}

    asked = []
    runs = [Run("none", 1, 9, 4.0), Run("none", 1, 7, 5.0), Run("none", 2, 7.5, 1.0),
            Run("none", 2, 9, 1.0), Run("layer", 3, 0, 0.0)]  # fmt: skip
    monkeypatch.setattr(plan.records, "runs", lambda *which: asked.append(which) or runs)
    assert plan.level() == 4.5
    assert asked == [("draw", "standard_tuning")]
    monkeypatch.setattr(plan.records, "runs", lambda *which: runs[4:])
    assert math.isnan(plan.level())
    assert not np.isfinite(plan.updates_to(plan.level)(frame({0: [9, 1]}), "a", ("a",))).any()


def test_the_papers_sizes_and_a_narrow_run_of_them():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    sizes = (paper.glimpses, paper.hidden, paper.read, paper.write, paper.latent, paper.batch_size)
    assert sizes == (64, 256, 2, 5, 100, 128)
    assert (paper.updates, paper.variant, paper.learning_rate) == (78_000, "cell_only", 1e-3)
    narrow = {"dataset": "digits", "hidden": 8, "latent": 4, "updates": 2, "evaluations": 1,
              "held_out": 10, "samples": 2}  # fmt: skip
    result = train(EXPERIMENT.config("paper", "layer", 0, **narrow), save=False).result
    assert result["final"]["test_bound"] < result["curves"]["test_bound"]["value"][0]
    assert "test_kl_64" in result["final"]


@pytest.mark.parametrize(
    ("arm", "change", "message"),
    [
        ("none", {"method": "batch"}, "method must be one of none, layer, got 'batch'"),
        ("none", {"variant": "paper"}, "variant 'paper' is for method 'layer'"),
        ("rescaled", {"initial_std": 0.1}, "rescaled sets the scale of the weights"),
        ("layer", {"read": 1}, "read: the value should be greater than or equal to 2, got 1"),
        ("layer", {"dataset": "faces"}, "dataset: the value should be 'digits', 'mnist' or 'amat'"),
    ],
)
def test_options_that_do_not_fit_are_refused(arm, change, message):
    with pytest.raises(ValueError, match=message):
        options(arm, **change)
