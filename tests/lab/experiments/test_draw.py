"""DRAW: filterbanks against a direct sum, its equations step by step, and how its arms start."""

import math

import pytest
import torch
from lab.experiments.drawing import ARMS, EXPERIMENT, drawer, made, normal, pictures
from torch import nn

from layernorm.functional import ln_lstm_step
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.draw import model as task
from layernorm.lab.experiments.run import train
from layernorm.recurrent import LayerNormLSTM

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
    run = made("layer")
    first, again, other = (run.model(run.noise(3, generator(s))).canvases for s in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


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
    """Four digits cost log 4 = 1.4 nats to tell apart, at least; pixels drawn one by one 60, of
    which less than half must be left (4 to 17 seen, over seeds and processors)."""
    few = {"examples": 4, "batch_size": 4, "updates": 700, "evaluations": 1,
           "hidden": 48, "glimpses": 3, "read": 4, "write": 8, "learning_rate": 0.005,
           "held_out": 20}  # fmt: skip
    for arm in ("none", "layer"):
        final = train(EXPERIMENT.config("book", arm, 0, **few), save=False).result["final"]
        assert final["train_bound"] < 30, arm
        assert final["validation_bound"] > 60, arm
