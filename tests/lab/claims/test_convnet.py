"""The claims of chapter 20 that records decide: each verdict, on made-up final values."""

import pandas
import pytest

from layernorm.lab import claims
from layernorm.lab.claims import chapter_20_convnet as chapter
from layernorm.lab.experiments import get
from layernorm.lab.records import RecordError

SEEDS = range(8)
EXPERIMENT = get("convnet")
ARMS = EXPERIMENT.profile("standard").arms
SPEED = {"none": 0.8, "rescaled": 0.6, "batch": 0.4, "layer": 0.5}
ERRORS = {"none": 9.0, "rescaled": 8.0, "batch": 3.0, "layer": 5.0}


def base(arm):
    return arm.split("-")[0]


class Made:
    """Final values by arm and metric; those of a seed differ a little from arm to arm."""

    def __init__(self):
        self.values = {}
        for number, arm in enumerate(ARMS):
            self.put(arm, "mean_test_nll", SPEED.get(base(arm), 0.5), 0.001, number)
            self.put(arm, "best_test_error", ERRORS.get(base(arm), 5.0), 0.05, number)
            self.put(arm, "border_active", 0.2, 0.01, number)
            self.put(arm, "border_variance", 0.1, 0.01, number)
        self.fit = dict.fromkeys(ARMS, 0.0)

    def put(self, arm, metric, value, noise=0.001, number=0):
        self.values[arm, metric] = [value + noise * ((seed * (3 + number)) % 7) for seed in SEEDS]

    def load(self, name, profile):
        if profile == "standard":
            rows = [
                (arm, metric, seed, float("nan"), value)
                for (arm, metric), values in self.values.items()
                for seed, value in zip(SEEDS, values, strict=True)
            ]
        elif profile == "standard_overfit":
            rows = [(arm, "train_error", 1000, float("nan"), v) for arm, v in self.fit.items()]
        else:
            raise RecordError(profile)
        return pandas.DataFrame(rows, columns=["arm", "metric", "seed", "step", "value"])


@pytest.fixture
def made(monkeypatch):
    made = Made()
    monkeypatch.setattr(chapter.records, "load", made.load)
    monkeypatch.setattr(chapter.records, "runs", lambda *_: [1])
    return made


def verdict(id):
    return claims.decide(f"{id}/convnet").verdict


ALL = [
    "batch-beats-layer",
    "layer-beats-none",
    "layer-beats-rescaled",
    "batch-ends-better-than-layer",
    "layer-ends-better-than-none",
    "border-units-rarely-active",
    "border-units-differ",
    "border-explains-the-gap",
]


@pytest.mark.parametrize("id", ALL)
def test_without_records_nothing_is_tested(id, monkeypatch):
    monkeypatch.setattr(chapter.records, "runs", lambda *_: [])
    assert verdict(id) == "not yet tested"


def test_what_the_paper_says_is_supported_where_the_values_say_so(made):
    assert [verdict(id) for id in ALL[:7]] == ["supported here"] * 7


@pytest.mark.parametrize(
    ("id", "one", "other", "metric", "value"),
    [
        ("batch-beats-layer", "batch", "layer", "mean_test_nll", 0.9),
        ("layer-beats-none", "layer", "none", "mean_test_nll", 0.9),
        ("layer-beats-rescaled", "layer", "rescaled", "mean_test_nll", 0.9),
        ("batch-ends-better-than-layer", "batch", "layer", "best_test_error", 20),
        ("layer-ends-better-than-none", "layer", "none", "best_test_error", 20),
    ],
)
def test_verdicts_need_both_networks(made, id, one, other, metric, value):
    made.put(one, metric, value)
    assert verdict(id) == "inconclusive"
    assert "resnet: supported here" in claims.decide(f"{id}/convnet").reason
    made.put(f"{one}-resnet", metric, value)
    assert verdict(id) == "opposite here"
    for suffix in ("", "-resnet"):
        made.values[one + suffix, metric] = list(made.values[other + suffix, metric])
    assert verdict(id) == "no difference here"


@pytest.mark.parametrize("arm", ["layer", "layer-resnet"])
def test_an_arm_that_does_not_learn_is_not_compared(made, arm):
    made.values[arm, "best_test_error"][3] = 89.0
    for id in ALL[:5]:
        found = claims.decide(f"{id}/convnet")
        assert found.verdict == "inconclusive"
        assert f"{arm} errs on 80% or more" in found.reason
    made.values[arm, "best_test_error"][3] = 5.0
    made.fit[arm] = 3.1
    assert f"{arm} errs on 32 training examples" in claims.decide(f"{ALL[0]}/convnet").reason
    del made.fit[arm]
    assert f"{arm} has no run" in claims.decide(f"{ALL[0]}/convnet").reason


def test_an_arm_that_diverged_does_not_spoil_the_other_comparisons(made):
    made.put("none", "mean_test_nll", float("inf"))
    made.put("none", "best_test_error", float("inf"))
    assert verdict("layer-beats-none") == "inconclusive"
    assert verdict("batch-beats-layer") == "supported here"


@pytest.mark.parametrize(
    ("id", "metric", "share", "expected"),
    [
        ("border-units-rarely-active", "border_active", 0.8, "opposite here"),
        ("border-units-rarely-active", "border_active", 3.0, "opposite here"),
        ("border-units-rarely-active", "border_active", 0.48, "inconclusive"),
        ("border-units-differ", "border_variance", 0.8, "opposite here"),
        ("border-units-differ", "border_variance", 3.0, "supported here"),
        ("border-units-differ", "border_variance", 0.48, "inconclusive"),
        ("border-units-differ", "border_variance", 1.99, "inconclusive"),
    ],
)
def test_border_units_are_judged_by_their_share(made, id, metric, share, expected):
    for arm in ("none", "batch", "layer"):
        made.put(arm, metric, share, noise=0.005)
    assert verdict(id) == expected


def test_border_units_are_judged_in_all_three_networks(made):
    made.put("batch", "border_active", 0.8)
    assert verdict("border-units-rarely-active") == "inconclusive"
    made.fit["batch"] = 50.0
    assert "batch errs on 32" in claims.decide("border-units-differ/convnet").reason


def gap(made, left):
    """Layer is 0.2 nats behind batch; without the border that much of it is left."""
    for way, (layer, batch) in chapter.WITHOUT_BORDER.items():
        made.put(batch, "mean_test_nll", 0.4)
        made.put(layer, "mean_test_nll", 0.4 + left[way] * 0.2, number=5)
    made.put("layer", "mean_test_nll", 0.6, number=3)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ((0.1, 0.2, -0.3), "supported here"),
        ((0.9, 0.8, 1.5), "opposite here"),
        ((0.1, 0.2, 0.9), "inconclusive"),
        ((0.5, 0.5, 0.5), "no difference here"),
    ],
)
def test_the_border_explains_the_gap_if_little_is_left_without_it(made, left, expected):
    gap(made, dict(zip(chapter.WITHOUT_BORDER, left, strict=True)))
    assert verdict("border-explains-the-gap") == expected


def test_without_a_gap_there_is_nothing_to_explain(made):
    gap(made, {"interior": 0.1, "circular": 0.1, "borderless": 0.1})
    made.put("layer", "mean_test_nll", 0.4, number=3)
    found = claims.decide("border-explains-the-gap/convnet")
    assert found.verdict == "inconclusive"
    assert "no gap to explain: batch - layer is no difference here" in found.reason


def test_the_rules_are_those_of_the_plan():
    profile = EXPERIMENT.profile("standard")
    assert EXPERIMENT.primary == chapter.SPEED
    assert EXPERIMENT.margin == chapter.MARGINS[chapter.SPEED]
    assert len(profile.seeds) == 8
    assert len(EXPERIMENT.comparisons) == 6
    assert len(chapter.ENDS) == 4
    asked = [
        arm for two in [*chapter.ENDS.values(), *chapter.WITHOUT_BORDER.values()] for arm in two
    ]
    assert set(asked) <= set(profile.arms)
    error_rate = 3 * (1 - chapter.FAMILY) + 2 * (1 - chapter.SINGLE)
    assert error_rate == pytest.approx(0.05)
