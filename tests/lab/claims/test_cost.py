"""Chapter 12's claims, decided from made-up measurements."""

from types import SimpleNamespace

import pytest
import torch

from layernorm.lab import claims
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.benchmarks.training import SUBJECTS
from layernorm.lab.claims import chapter_12
from layernorm.lab.experiments import get
from layernorm.lab.experiments.studies import batch_size

MLP, LSTM = (128, 784, 1000, 1000, 10), (50, 32, 128, 128)
DIGITS = (64, 128, 128, 10)
CPU, GPU = ("cpu", "one CPU, 1 threads"), ("cuda", "one GPU")


def row(model, name, shape, ratio, spread=0.01, seconds=None, on=CPU):
    return Row(
        "training", name.partition("/")[0], name, "none", "training", shape, "float32", on[0], 0,
        "measured", seconds=ratio if seconds is None else seconds, ratio=ratio,
        ratio_low=ratio - spread, ratio_high=ratio + spread,
        options={"model": model, "machine": on[1]},
    )  # fmt: skip


@pytest.fixture
def recorded(monkeypatch):
    """Made-up rows in the place of the recorded ones, by profile."""

    def record(*rows):
        def found(profile):
            return [r for r in rows if r.device.startswith(profile)]

        monkeypatch.setattr("layernorm.lab.benchmarks.training.recorded", found)

    return record


def mlps(large, small, spread=0.01, on=CPU):
    return [
        row("mlp", "layer/torch", MLP, large, spread, on=on),
        row("mlp", "layer/torch", (4, *MLP[1:]), small, spread, on=on),
        row("mlp", "none", MLP, 1.0, 0.0, on=on),
    ]


SLOWER = {
    "above": ((1.2, 1.3), "supported here"),
    "at the margin": ((1.2, 1.06), "inconclusive"),
    "alike": ((1.01, 0.99), "no difference here"),
    "faster": ((0.9, 0.8), "opposite here"),
    "either": ((1.2, 0.9), "depends"),
    "alike or faster": ((0.952, 0.99), "not better here"),
}


@pytest.mark.parametrize("case", SLOWER)
@pytest.mark.parametrize(("where", "on"), [("mnist", CPU), ("gpu", GPU)])
def test_an_update_is_slower_if_every_interval_says_so(case, where, on, recorded):
    ratios, verdict = SLOWER[case]
    recorded(*mlps(*ratios, on=on))
    assert claims.decide(f"slower-per-update/{where}").verdict == verdict


def test_on_a_cpu_each_network_is_judged_by_itself(recorded):
    recorded(*mlps(1.2, 1.3), row("digits", "layer/torch", (4, *DIGITS), 0.9))
    assert claims.decide("slower-per-update/mnist").verdict == "supported here"
    assert claims.decide("slower-per-update/mlp_cpu").verdict == "opposite here"


def test_each_device_is_judged_by_its_own_record(recorded):
    recorded(*mlps(1.2, 1.3, on=CPU))
    assert claims.decide("slower-per-update/gpu").verdict == "not yet tested"
    recorded(*mlps(1.2, 1.3, on=GPU))
    assert claims.decide("slower-per-update/mnist").verdict == "not yet tested"


def test_two_machines_must_both_agree(recorded):
    other = ("cuda", "another GPU")
    recorded(*mlps(1.2, 1.3, on=GPU), *mlps(1.2, 1.0, on=other))
    assert claims.decide("slower-per-update/gpu").verdict == "depends"


def test_the_fastest_implementation_counts(recorded):
    slow = row("mlp", "layer/reference", MLP, 1.5)
    recorded(slow, row("mlp", "layer/torch", MLP, 1.01), row("mlp", "rms/torch", MLP, 1.6))
    finding = claims.decide("slower-per-update/mnist")
    assert finding.verdict == "no difference here"
    assert "mlp 128,784,1000,1000,10 (layer/torch) 1.01 [1.00, 1.02]" in finding.evidence
    assert [(shown["ratio"], shown["margin"]) for shown in finding.table] == [
        ("1.01 [1, 1.02]", "1.05")
    ]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.03, "supported here"), (1.2, "opposite here"), (1.05, "inconclusive")]
)
def test_a_recurrent_update_costs_significantly_more_above_a_twentieth(ratio, verdict, recorded):
    another_model = mlps(1.3, 1.3, on=GPU)
    recorded(row("lstm", "layer/fused", LSTM, ratio, on=GPU), *another_model)
    assert claims.decide("no-significant-cost-per-step/recurrent_gpu").verdict == verdict


def test_the_share_of_arithmetic_by_hand():
    """Two units after three inputs, then ten logits: 24 x 2 over 4 x 3 x 2 + 6 x 2 x 10."""
    assert chapter_12.share_of_arithmetic((7, 3, 2, 10)) == 48 / 144
    assert 0.005 < chapter_12.share_of_arithmetic(MLP) < 0.0055


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [
        (1.05, 0.01, "supported here"),
        (1.02, 0.01, "inconclusive"),  # it may be as little as twice the share
        (1.0, 0.001, "opposite here"),
        (0.9, 0.01, "opposite here"),
        (1.0, 0.01, "inconclusive"),
    ],
)
@pytest.mark.parametrize(("where", "on"), [("cpu", CPU), ("gpu", GPU)])
def test_norms_are_dear_if_they_take_much_more_than_their_share(
    ratio, spread, verdict, where, on, recorded
):
    recorded(*mlps(ratio, ratio, spread, on), row("digits", "layer/torch", (4, *DIGITS), 1.5, 0.1))
    finding = claims.decide(f"moments-slower-than-products/{where}")
    assert finding.verdict == verdict
    assert "0.5% of the arithmetic" in finding.evidence


def test_the_rules_name_models_that_there_are():
    for id in ("slower-per-update/mlp_cpu", "no-significant-cost-per-step/recurrent_gpu"):
        rule = claims.get(id).rule
        assert [model for model in SUBJECTS if f"{model} and" in rule or f"({model}" in rule]
    assert get("mnist").profile("paper")  # the mlp's sizes are the experiment's


def test_an_update_of_the_digits_takes_as_long_as_its_fastest_implementation(monkeypatch):
    def run(model, method, batch, **timing):
        options = {"model": model, "shape": [batch, *DIGITS]}
        return SimpleNamespace(config={"method": method, "options": options}, timing=timing)

    runs = [run("digits", "layer", 4, seconds=s, ratio=1.0) for s in (3.0, 2.0)]
    runs += [run("mlp", "none", 1, seconds=0.5, ratio=1.0), run("digits", "none", 4, seconds=0.1)]
    runs.append(run("digits", "none", 1, seconds=1.0, ratio=1.0))
    monkeypatch.setattr(batch_size.records, "runs", lambda *asked: runs)
    assert batch_size.seconds_of_updates() == {"layer-4": 2.0, "none-1": 1.0}


def test_a_product_is_told_from_a_norm_by_its_operations_a_byte():
    x = torch.randn(64, 64)
    assert chapter_12.intensity(torch.mm, x, x) == pytest.approx(2 * 64**3 / (3 * 4 * 64**2))
    assert chapter_12.by_products(x).allclose(chapter_12.normalize(x), atol=1e-5)
