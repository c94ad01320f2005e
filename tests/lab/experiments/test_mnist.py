"""The experiment of section 6.6: what its arms build, how they train, and its plan."""

import math

import pytest
import torch
from torch import nn

from layernorm.lab import data
from layernorm.lab.analysis import networks
from layernorm.lab.data.splits import scaled
from layernorm.lab.experiments import get
from layernorm.lab.experiments.mnist import model as mnist
from layernorm.lab.experiments.mnist import plan
from layernorm.lab.experiments.run import train

CPU = torch.device("cpu")
EXPERIMENT = get("mnist")


def options(**values):
    small = {"dataset": "digits", "hidden": (12, 9), "batch_size": 16, "updates": 10}
    return plan.MnistOptions(**{**small, "evaluations": 2, **values})


def task(seed=0, **values):
    torch.manual_seed(seed)
    return mnist.Mnist(options(**values), seed, CPU)


@torch.no_grad()
def measured(made):
    made.model.eval()
    return made.evaluate()


@pytest.fixture
def generated(monkeypatch):
    """Images of MNIST's size, 60 for training, in place of the real ones."""
    draw = torch.Generator().manual_seed(0)
    parts = {}
    for name, cases in (("train", 60), ("validation", 20), ("test", 30)):
        pixels = torch.randint(256, (cases, 28, 28), generator=draw, dtype=torch.uint8)
        parts[name] = (pixels, (torch.arange(cases) % 10).to(torch.uint8))
    splits = scaled("mnist", parts, maximum=255)
    monkeypatch.setattr(data, "mnist", lambda: splits)
    mnist.splits.cache_clear()
    yield splits
    mnist.splits.cache_clear()


@pytest.mark.parametrize("method", ["layer", "batch"])
def test_logits_are_normalized_only_where_that_is_asked(method):
    """Normalized, and at gain 1 and bias 0, they have mean 0 and variance 1 over the units of a
    case, or over the cases of a batch."""
    axis = 1 if method == "layer" else 0
    spread = {}
    for asked in (False, True):
        made = task(method=method, logits=asked)
        logits = made.model(made.x[:50]).detach()
        spread[asked] = (logits.mean(axis).abs().max(), (logits.var(axis) - 1).abs().max())
    assert spread[True][0] < 1e-4
    assert spread[True][1] < 0.15
    assert spread[False][0] > 0.05
    assert spread[False][1] > 0.5


def weights(model):
    return [m.weight for m in model.modules() if isinstance(m, nn.Linear)]


def test_normalized_arms_of_a_seed_start_from_the_same_weights():
    layer = weights(task(method="layer").model)
    for values in (
        {"method": "layer", "logits": True},
        {"method": "layer", "affine": False},
        {"method": "rms"},
        {"method": "batch", "unbiased": True, "logits": True},
        {"method": "batch", "noise": 0.5},
    ):
        assert all(map(torch.equal, layer, weights(task(**values).model))), values
    assert torch.equal(layer[0], weights(task().model)[0])  # the next are drawn after its biases
    assert not torch.equal(layer[0], weights(task(seed=1, method="layer").model)[0])


def test_the_initial_scale_is_that_of_hidden_weights():
    plain, large = (weights(task(method="layer", initial_scale=s).model) for s in (1.0, 10.0))
    assert torch.allclose(large[0], 10 * plain[0])
    assert torch.allclose(large[1], 10 * plain[1])
    assert torch.equal(large[2], plain[2])


def test_without_gain_and_bias_layer_normalization_has_no_parameters():
    for affine, count in ((True, 4), (False, 0)):
        model = task(method="layer", affine=affine).model
        norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
        assert [len(list(n.parameters())) for n in norms] == [count // 2] * 2


@pytest.mark.parametrize("method", ["layer", "batch"])
def test_noise_gives_every_unit_the_drawn_scale_and_mean_in_training_alone(method):
    made = task(method=method, noise=0.5)
    block = made.model[2]
    h = made.model[:2](made.x[:40]).detach()
    with torch.no_grad():
        clean = block[1](block[0](h))
        made.loss(3)
        noisy = block(h)
    scale, mean = (
        noisy.std(0) / clean.std(0),
        noisy.mean(0) - noisy.std(0) / clean.std(0) * clean.mean(0),
    )
    assert torch.allclose(scale, block[-1].scale, atol=1e-5)
    assert torch.allclose(mean, block[-1].mean, atol=1e-5)
    assert (scale - 1).max() > 0.1
    assert 0.1 < mean.abs().max() <= 0.5
    assert scale.min() >= 1 - 1e-5
    assert scale.max() <= 1.25 + 1e-5
    made.model.eval()
    assert torch.equal(block(h), block[1](block[0](h)))


def test_noise_depends_on_seed_update_and_layer_alone():
    def drawn(seed, step):
        made = task(seed, method="layer", noise=0.5, hidden=(9, 9))
        made.loss(step)
        return [noise.mean.clone() for noise in made.noise]

    first = drawn(0, 1)
    assert len(first) == 2
    assert torch.equal(first[0], drawn(0, 1)[0])
    for other in (drawn(0, 2)[0], drawn(1, 1)[0], first[1]):
        assert not torch.equal(first[0], other)


def test_unbiased_variance_at_batch_4_against_torch_by_hand():
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=torch.float64).requires_grad_()
    norm = mnist.UnbiasedBatchNorm(5, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    y = norm(x)
    spread = (x.var(0, unbiased=True) + norm.eps).sqrt()
    by_hand = (x - x.mean(0)) / spread * norm.weight + norm.bias
    assert torch.allclose(y, by_hand, rtol=0, atol=1e-12)
    biased = nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
    assert not torch.allclose(y, biased, atol=1e-2)
    toward = torch.randn_like(y)
    grads = [torch.autograd.grad(z, x, toward, retain_graph=True)[0] for z in (y, by_hand)]
    assert torch.allclose(*grads, rtol=0, atol=1e-12)
    assert torch.allclose(norm.running_mean, 0.1 * x.mean(0))
    assert torch.allclose(norm.running_var, 0.9 + 0.1 * x.var(0, unbiased=True))
    norm.eval()
    like = nn.BatchNorm1d(5, dtype=torch.float64).eval()
    like.load_state_dict(norm.state_dict())
    assert torch.equal(norm(x), like(x))


def test_unbiased_batch_normalization_is_on_every_layer_that_is_normalized():
    model = task(method="batch", unbiased=True, logits=True).model
    assert sum(isinstance(m, mnist.UnbiasedBatchNorm) for m in model.modules()) == 3
    assert not any(
        isinstance(m, mnist.UnbiasedBatchNorm) for m in task(method="batch").model.modules()
    )


def test_the_control_starts_with_summed_inputs_of_unit_variance():
    made = task(rescaled=True)
    spreads = [a.std().item() for a in networks.summed_inputs(made.model, made.x)]
    assert spreads == pytest.approx([1, 1, 1], abs=1e-3)
    plain = [a.std().item() for a in networks.summed_inputs(task().model, made.x)]
    assert max(plain) < 0.5


def test_drift_is_read_where_it_is_asked_and_grows_from_nothing():
    record = train(EXPERIMENT.config("book", "layer", 0, updates=20, evaluations=2), save=False)
    for metric in ("drift", "drift_below"):
        curve = record.result["curves"][metric]["value"]
        assert curve[0] == 0
        assert curve[1] > 0.1
    assert "drift" not in measured(task(method="layer"))


def test_noise_makes_summed_inputs_drift():
    """At a learning rate at which nothing else moves them."""
    still = {"learning_rate": 1e-12, "updates": 4, "evaluations": 2, "dataset": "digits"}
    still |= {"hidden": [30, 20]}
    drifts = {
        arm: train(EXPERIMENT.config("standard", arm, 0, **still), save=False).result["final"]
        for arm in ("layer", "layer/noise")
    }
    assert drifts["layer"]["drift"] < 1e-5
    assert drifts["layer/noise"]["drift"] > 0.2


@pytest.mark.parametrize("profile", ["standard", "paper", "paper_tenth"])
def test_every_arm_trains_a_few_steps_at_small_size(generated, profile):
    for arm in EXPERIMENT.profile(profile).arms:
        few = {"hidden": [8, 6], "updates": 3, "evaluations": 1, "examples": 50}
        few["batch_size"] = min(50, EXPERIMENT.arms[arm]["batch_size"])
        final = train(EXPERIMENT.config(profile, arm, 0, **few), save=False).result["final"]
        assert math.isfinite(final["mean_test_nll"]), arm


@pytest.mark.parametrize("arm", EXPERIMENT.profile("paper").arms)
def test_the_papers_configurations_have_its_sizes_and_start(generated, arm):
    config = EXPERIMENT.config("paper", arm, 0)
    size = 4 if arm.endswith("-4") else 128
    assert config.options.batch_size == size
    assert config.options.updates == 60 * (55_000 // size)
    few = config.options.model_copy(update={"batch_size": 4, "updates": 2, "evaluations": 1})
    torch.manual_seed(0)
    made = mnist.Mnist(few, 0, CPU)
    assert sum(p.numel() for p in made.model.parameters()) >= 784_000 + 1_000_000 + 10_000
    made.loss(1).backward()


def test_training_metrics_are_those_of_the_examples_trained_on():
    made = task(examples=20)
    assert len(made.y) == 20
    metrics = measured(made)
    expected = nn.functional.cross_entropy(made.model(made.x), made.y)
    assert metrics["train_nll"] == pytest.approx(expected.item(), rel=1e-5)


def test_metrics_do_not_depend_on_the_size_of_chunks(monkeypatch):
    whole = measured(task(method="layer"))
    monkeypatch.setattr(mnist, "CHUNK", 7)
    parts = measured(task(method="layer"))
    assert parts == pytest.approx(whole, rel=1e-5)


def test_arms_that_change_the_start_or_the_data_take_the_rate_of_their_method():
    for arm in EXPERIMENT.arms:
        changed = arm.endswith(("/small", "/large", "/few"))
        assert EXPERIMENT.rate_of.get(arm) == (arm.split("/")[0] if changed else None)
