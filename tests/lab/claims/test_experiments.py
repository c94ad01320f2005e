"""The claims of experiments: each verdict that a claim can have, on made-up runs of its arms."""

import math
from dataclasses import replace
from inspect import getclosurevars, unwrap
from itertools import product

import numpy as np
import pandas
import pytest

from layernorm.lab import claims
from layernorm.lab.claims import levels
from layernorm.lab.claims.experiments import ROWS
from layernorm.lab.claims.experiments import finding as of_claim
from layernorm.lab.data.cloze_baselines import best_trivial
from layernorm.lab.experiments import NAMES, get, planning, report
from layernorm.lab.experiments.attentive_reader.model import held_out
from layernorm.lab.experiments.attentive_reader.plan import trivial_error
from layernorm.lab.experiments.compare import Verdicts
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Margin,
    Said,
    difference,
    less,
)
from layernorm.lab.experiments.studies import batch_size

PLANS = {name: get(name) for name in NAMES}
CLAIMS = {  # each with its experiment, whose main plan is here the claim's
    id: (replace(experiment, comparisons=plan), said, rows)
    for id, (experiment, plan, said, rows) in ROWS.items()
}
DECIDED = {id: found for id, found in CLAIMS.items() if found[2][0].family == "primary"}
COLUMNS = ["arm", "seed", "step", "seconds", "metric", "value", "options"]


def read(metric, made_by):
    """The metric's source, if this function of `curves` made it; "" for another."""
    metric = unwrap(metric) if callable(metric) else metric
    if getattr(metric, "__qualname__", "").partition(".")[0] != made_by:
        return ""
    return getclosurevars(metric).nonlocals["metric"]


class Runs:
    """Runs of these arms that all end alike, but for what a test changes; curves are level."""

    def __init__(self, experiment, arms):
        plan = experiment.comparisons
        self.experiment, self.seeds = experiment, experiment.profile(plan.profile).seeds
        metrics = {metric for row in plan.rows for *_, metric in row.contrast}
        metrics |= {gate.metric for gate in plan.gates}
        self.values = {(arm, m): 0.05 for arm in arms for m in metrics if isinstance(m, str)}
        for gate in plan.gates:
            if not callable(gate.below) and gate.below <= 0:
                self.values |= {(arm, gate.metric): gate.below - 1 for arm in arms}
        logarithms = {m: read(m, "logarithm") for m in metrics}
        self.ratios = {m: of for m, of in logarithms.items() if of and isinstance(of, str)}
        self.beyond = {m: of for m in metrics if (of := read(m, "beyond"))}
        self.curves = {"test_nll", "test_bound", *(read(m, "over_seconds") for m in metrics)} - {""}
        self.values |= {(arm, of): 1.0 for arm in arms for of in self.ratios.values()}
        self.values |= {
            (arm, of): getclosurevars(m).nonlocals["null"](self.options(arm))
            for m, of in self.beyond.items()
            for arm in arms
        }
        self.curve = dict.fromkeys(arms, 0.05)
        self.few = dict.fromkeys(arms)  # None: learned by heart

    def options(self, arm):
        profile = self.experiment.comparisons.profile
        return self.experiment.config(profile, arm, 0).options.model_dump()

    def move(self, arm, metric, by):
        if isinstance(metric, str):
            self.values[arm, metric] += by
        elif metric in self.ratios:
            self.values[arm, self.ratios[metric]] *= math.exp(by)
        elif metric in self.beyond:
            self.values[arm, self.beyond[metric]] += by
        else:
            self.curve[arm] += by

    def verdicts(self):
        plan = self.experiment.comparisons
        scale = self.experiment.profile(plan.profile)
        return Verdicts(
            *(plan, self.table(), self.table(few=True), scale.arms, scale.seeds),
            first=scale.first,
            next_best=self.table(),
            rate_of=self.experiment.rate_of,
            original=self.experiment.original,
        )

    def table(self, few=False):
        plan = self.experiment.comparisons
        rows = []
        if few:
            gates = [gate for gate in plan.gates if gate.by_heart]
            for arm, gate in product(self.few, gates):
                value = self.few[arm]
                if value is None:
                    value = 0.0 if callable(gate.below) else gate.below - 1
                rows.append((arm, 1000, math.nan, math.nan, gate.metric, value, self.options(arm)))
            return pandas.DataFrame(rows, columns=COLUMNS)
        ends = {(arm, m): at for arm, at in self.curve.items() for m in sorted(self.curves)}
        for number, ((arm, metric), value) in enumerate({**ends, **self.values}.items()):
            for seed in self.seeds:
                off = 1e-5 * ((seed * (3 + number)) % 7)
                rows.append((arm, seed, math.nan, math.nan, metric, value + off, {}))
        for number, (arm, value) in enumerate(self.curve.items()):
            for seed, (step, train) in product(self.seeds, ((0.0, 2.0), (10.0, 0.01))):
                off = 1e-5 * ((seed * (3 + number)) % 7)
                for metric in sorted(self.curves):
                    rows.append((arm, seed, step, step, metric, value + off, {}))
                rows.append((arm, seed, step, step, "train_nll", train, {}))
                if self.experiment.name == "order_embeddings":  # a level is reached so much later
                    late = step * math.exp(value + off)
                    rows.append((arm, seed, late, late, "validation_missed", train, {}))
        frame = pandas.DataFrame(rows, columns=COLUMNS)
        options = frame.arm.map({arm: self.options(arm) for arm in self.few})
        return frame.assign(options=options, profile=plan.profile)


@pytest.fixture
def made(monkeypatch):
    """Puts made-up runs of an experiment in the place of the published ones."""

    def make(experiment, arms):
        runs = Runs(experiment, arms)
        monkeypatch.setattr(report, "finished", lambda name: {})
        monkeypatch.setattr(planning.Sweep, "verdicts", lambda sweep, done: runs.verdicts())
        monkeypatch.setattr("layernorm.lab.records.runs", lambda *_: [])
        monkeypatch.setattr("layernorm.lab.records.tidy", lambda _: runs.table())  # for levels
        return runs

    monkeypatch.setattr(batch_size, "seconds_of_updates", lambda: ONE_SECOND)
    return make


ONE_SECOND = dict.fromkeys(batch_size.EXPERIMENT.arms, 1.0)


def turn(runs, said, rows, *ways):
    """Moves each row's difference far beyond its margin (-1 to the better side, 1 to the other, 0
    leaves it), by a term that is its own if it has one; rows that come first are made supported."""
    given = [row for row in runs.experiment.comparisons.rows if row.name in said.given]
    if said.id == "long-sequences-and-small-batches-benefit-most/handwriting":
        return turn_together(runs, rows, ways)
    for row, way in (*((row, -1) for row in given), *zip(rows, ways, strict=True)):
        others = [term for other in (*given, *rows) if other is not row for term in other.contrast]
        taken = {what(term) for term in others}
        own = [term for term in row.contrast if what(term) not in taken]
        weight, arm, metric = (own or row.contrast)[0]
        runs.move(arm, metric, way * 10 * row.margin.size / weight)


def what(term):
    """The metric that a term of a contrast reads, its logarithm taken or not."""
    _, arm, metric = term
    return arm, read(metric, "logarithm") or metric


def turn_together(runs, rows, ways):
    """The same for effects in one grid, which share all their arms: the moves are solved for."""
    weights = {(row.name, *term[1:]): term[0] for row in rows for term in row.contrast}
    terms = list(dict.fromkeys(term[1:] for row in rows for term in row.contrast))
    matrix = [[weights[row.name, *term] for term in terms] for row in rows]
    wanted = [way * 10 * row.margin.size for row, way in zip(rows, ways, strict=True)]
    for term, by in zip(terms, np.linalg.lstsq(matrix, wanted)[0], strict=True):
        runs.move(*term, by)


EXPECTED = {  # by what the statement says: verdicts at 0, 1 and -1
    "better": ("no difference here", "opposite here", "supported here"),
    "not worse": ("supported here", "opposite here", "supported here"),
    "same": ("supported here", "opposite here", "opposite here"),
}


def arms_of(experiment, said, rows):
    given = [row for row in experiment.comparisons.rows if row.name in said.given]
    return {arm: None for row in (*given, *rows) for arm in row.arms}


@pytest.mark.parametrize("id", [id for id in DECIDED if id != "twice-as-fast/draw"])  # test_draw
def test_each_claim_can_have_each_verdict(id, made):
    experiment, said, rows = CLAIMS[id]
    for way in (1, -1) if said.given else (0, 1, -1):
        runs = made(experiment, arms_of(experiment, said, rows))
        turn(runs, said, rows, *[way] * len(rows))
        finding = claims.decide(id)
        of_a_share = way == 0 and id.startswith("sixty-percent")  # which equal arms exceed
        expected = "opposite here" if of_a_share else EXPECTED[rows[0].says][way]
        assert finding.verdict == expected
        assert all(row.name in finding.evidence for row in rows)
        assert set(finding.numbers) == {*said.given, *(row.name for row in rows)}
        for row, shown in zip(rows, finding.table[-len(rows) :], strict=True):
            assert shown["comparison"] == row.name
            assert int(shown["n"]) >= 5
            assert shown["margin"].startswith(f"{row.margin.size:.3g}")
            assert shown["same verdict for margins"].startswith(("from ", "up to ", "any"))
            assert bool(shown["verdict"]) == (len(finding.table) > 1)


@pytest.mark.parametrize("id", sorted(CLAIMS.keys() - DECIDED.keys()))
def test_an_exploratory_claim_is_shown_and_never_decided(id, made):
    experiment, said, rows = CLAIMS[id]
    for way in (0, 1, -1):
        runs = made(experiment, arms_of(experiment, said, rows))
        turn(runs, said, rows, *[way] * len(rows))
        finding = claims.decide(id)
        assert finding.verdict == "exploratory"
        assert all(row.name in finding.evidence for row in rows)
        assert len(finding.numbers) == len(rows) + len(said.given)
        assert not any(shown["same verdict for margins"] for shown in finding.table[-len(rows) :])
    runs.few = dict.fromkeys(runs.few, 50.0)
    finding = claims.decide(id)
    assert finding.verdict == "exploratory"
    assert "Gate failed: " in finding.evidence
    assert finding.table[-1]["but"].startswith("gate failed: ")


@pytest.mark.parametrize("id", [id for id, (_, _, rows) in DECIDED.items() if len(rows) > 1])
def test_conditions_that_disagree_are_what_a_claim_depends_on(id, made):
    experiment, said, rows = CLAIMS[id]
    runs = made(experiment, arms_of(experiment, said, rows))
    turn(runs, said, rows, 1, *[0 if rows[0].says == "same" else -1] * (len(rows) - 1))
    finding = claims.decide(id)
    if id != "mixed-units/digits":  # its second condition holds more than its first
        assert finding.verdict == "depends"
        assert f"{rows[0].name}: opposite here; {rows[1].name}: " in finding.reason


@pytest.mark.parametrize("name", [name for name in PLANS if PLANS[name].comparisons.gates])
def test_arms_that_do_not_learn_decide_no_claim(name, made):
    id, (experiment, said, rows) = next(item for item in DECIDED.items() if item[1][0].name == name)
    runs = made(experiment, arms_of(experiment, said, rows))
    turn(runs, said, rows, *[-1] * len(rows))
    runs.few = dict.fromkeys(runs.few, 100.0)
    finding = claims.decide(id)
    assert finding.verdict == "inconclusive"
    assert finding.reason.startswith("Gate failed: ")
    assert finding.numbers  # the intervals are shown


def test_nothing_is_tested_where_there_are_no_records(monkeypatch):
    monkeypatch.setattr("layernorm.lab.records.runs", lambda *_, **__: [])
    for id in (*CLAIMS, *(level.id for level in levels.LEVELS)):
        assert claims.decide(id).verdict == "not yet tested"


def test_nothing_is_tested_by_an_arm_without_runs(made):
    id = "long-sequences-and-small-batches-benefit-most/handwriting"
    experiment, said, rows = CLAIMS[id]
    arms = arms_of(experiment, said, rows)
    made(experiment, arms.keys() - {"layer-32"})
    assert claims.decide(id).verdict == "not yet tested"
    assert claims.decide("better-result/handwriting").verdict == "no difference here"


def test_while_seeds_are_missing_nothing_is_tested(made):
    experiment, *_ = CLAIMS["better-result/handwriting"]
    runs, first = made(experiment, experiment.arms), experiment.profile("standard").first
    for count, verdict in ((first, "no difference here"), (first - 1, "not yet tested")):
        runs.seeds = runs.seeds[:count]
        assert claims.decide("better-result/handwriting").verdict == verdict


def test_what_comes_first_must_be_supported(made):
    experiment, said, rows = CLAIMS["border-explains-the-gap/convnet"]
    runs = made(experiment, arms_of(experiment, said, rows))
    for row in rows:
        runs.move(row.contrast[0][1], "mean_test_nll", -1)
    finding = claims.decide(said.id)
    assert finding.verdict == "inconclusive"
    assert finding.reason == "Not supported, which comes first: batch - layer."


def test_while_runs_of_what_comes_first_are_missing_nothing_is_tested():
    margin = Margin(1.0, "nats", "the loss", "it is visible")
    said = Said("x", "X.", given=("first",))
    first = Comparison("first", less("c", "b", "loss"), margin)
    row = Comparison("a - b", less("a", "b", "loss"), margin, said)
    runs = [(arm, n, math.nan, math.nan, "loss", 0.0, {}) for arm, n in product("ab", range(2))]
    frame = pandas.DataFrame(runs, columns=COLUMNS)
    found = Verdicts(Comparisons((first, row), gates=()), frame, frame, "abc", range(2))
    assert of_claim(said, [row], found).verdict == "not yet tested"


def test_an_open_claim_names_what_is_open_and_what_may_be():
    margin, said = Margin(1.0, "points", "the loss", "it is visible"), Said("x", "X.")
    names = {"a": "a - b", "c": "c - b"}
    rows = [Comparison(names[n], less(n, "b", "loss"), margin, said) for n in names]
    losses = {"a": (-5.0, -5.1, -5.2), "b": (0.0, 0.0, 0.0), "c": (-0.5, 0.0, -0.9)}
    runs = [
        (arm, seed, math.nan, math.nan, "loss", value, {})
        for arm, of_seed in losses.items()
        for seed, value in enumerate(of_seed)
    ]
    frame = pandas.DataFrame(runs, columns=COLUMNS)
    found = Verdicts(Comparisons(tuple(rows), gates=()), frame, frame, "abc", range(3))
    both = of_claim(said, rows, found)
    assert (both.verdict, both.reason) == ("inconclusive", 'The runs do not decide "c - b".')
    assert [shown["verdict"] for shown in both.table] == ["supported here", "inconclusive"]
    assert [shown["possible"] for shown in both.table] == ["", "anything"]
    assert {shown["margin"] for shown in both.table} == {"1 point"}
    [alone] = of_claim(said, rows[1:], found).table
    assert alone["verdict"] == ""


def test_starts_and_gains_that_are_asked_about_need_not_learn(made):
    for id, arm, metric in (
        ("gains-of-one-are-better/attentive_reader", "layer/gain-0.1", "best_test_error"),
        ("robust-to-initial-scale/mnist", "none/large", "test_error"),
        ("robust-to-initial-scale/digits", "none-large-tuned", "test_error"),
        ("batches-must-be-scattered/digits", "batch-sorted", "test_error"),
    ):
        experiment, said, rows = CLAIMS[id]
        runs = made(experiment, arms_of(experiment, said, rows))
        turn(runs, said, rows, *[-1] * len(rows))
        runs.values[arm, metric] = 95.0
        finding = claims.decide(id)
        assert finding.verdict != "inconclusive"
        assert "Gate failed" not in finding.evidence


def test_the_trivial_error_is_that_of_the_test_stories():
    experiment = get("attentive_reader")
    options = experiment.config("standard", "layer", 0).options
    expected = 100 - 100 * best_trivial(
        options.world(), held_out(options.world(), options.held_out)["test"]
    )
    assert trivial_error(options.model_dump()) == pytest.approx(expected)
    assert 15 < expected < 60


def test_seconds_on_the_digits_are_updates_times_their_recorded_time(made, monkeypatch):
    """`layer` is twice as steep; its updates take once or four times as long."""
    frame = pandas.DataFrame(
        [
            (arm, seed, float(step), math.nan, "test_nll", 2.0 + (end - 2.0) * min(4, step) / 4)
            for arm, end in (("layer-4", 0.0), ("none-4", 1.0))
            for seed, step in product(range(3), (*range(5), math.nan))
        ],
        columns=COLUMNS[:-1],
    )
    row = next(
        row for row in PLANS["batch_size"].comparisons.rows if row.name.endswith("4, seconds")
    )
    for factor, expected in ((1.0, -0.5), (4.0, 0.25)):
        seconds = {"layer-4": factor, "none-4": 1.0}
        monkeypatch.setattr(batch_size, "seconds_of_updates", lambda seconds=seconds: seconds)
        assert difference(frame, row.contrast).tolist() == pytest.approx([expected] * 3, abs=0.01)


@pytest.mark.parametrize("level", levels.LEVELS, ids=lambda level: level.id)
def test_a_level_is_reached_by_all_arms_or_it_is_not(level, made):
    low, high = level.between
    inside, below, above = (low + high) / 2, low / 2, 2 * high
    good, bad = (above, inside) if level.says == "outside" else (below, above)
    runs = made(level.experiment(), level.arms)

    def decided(value, *arms):
        units = {arm: level.unit(runs.options(arm)) for arm in arms}
        runs.values |= {(arm, level.less): 0.0 for arm in arms if level.less}
        runs.values |= {(arm, level.metric): value * unit for arm, unit in units.items()}
        return claims.decide(level.id)

    assert decided(below, *level.arms).verdict == "supported here"
    assert decided(good, *level.arms).verdict == "supported here"
    assert decided(bad, *level.arms).verdict == "opposite here"
    mixed = decided(good, level.arms[0]).verdict
    assert mixed == ("depends" if len(level.arms) > 1 else "supported here")
    if level.says == "below" and low < high:
        assert decided(inside, level.arms[0]).verdict == "inconclusive"
    assert decided(math.inf, level.arms[0]).reason == f"A run of {level.arms[0]} diverged."
    runs.few[level.arms[-1]] = 50.0
    assert decided(good, *level.arms).verdict == (
        "inconclusive" if level.gated else "supported here"
    )
    made(level.experiment(), [arm for arm in level.experiment().arms if arm != level.arms[0]])
    assert claims.decide(level.id).verdict == "not yet tested"


def test_levels_of_one_experiment_count_each_other(made):
    """ConvNets have six primary comparisons and levels of two metrics for three arms: twelve share
    5%."""
    runs = made(get("convnet"), tuple(get("convnet").arms))
    for level in levels.LEVELS[-3:]:
        runs.values |= {(arm, level.metric): 0.1 for arm in level.arms}
        assert "99.58% intervals" in claims.decide(level.id).evidence
