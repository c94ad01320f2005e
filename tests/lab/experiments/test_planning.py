"""The runs a sweep still has to make, and the table it ends with: worked by hand."""

import math
from dataclasses import replace

import pytest
from lab.experiments import toy_experiment

from layernorm.lab import records
from layernorm.lab.experiments import get, report
from layernorm.lab.experiments.contrasts import Gate
from layernorm.lab.experiments.experiment import TUNING_SEED
from layernorm.lab.experiments.planning import Sweep, ranked, used

pytestmark = pytest.mark.usefixtures("toy")


@pytest.fixture
def plan(monkeypatch):
    """Replaces parts of the plan, or of one of its profiles."""

    def change(profile=None, **parts):
        experiment = toy_experiment.EXPERIMENT
        if profile:
            parts = {"profiles": {profile: replace(experiment.profiles[profile], **parts)}}
        monkeypatch.setattr(toy_experiment, "EXPERIMENT", replace(experiment, **parts))

    return change


def ran(config, validation=1.0, test=1.0, diverged_at=None, seconds=0.001):
    """The record of a run of this configuration."""
    final = {"mean_validation_nll": validation, "mean_test_nll": test}
    result = {"final": final, "curves": {}, "diverged_at": diverged_at}
    return records.new(get("toy").document(config), result, {"seconds_per_update": seconds})


def carried_out(sweep, judge, *, batch=None):
    """All rounds of a sweep whose runs come to `judge(config)`: the runs of each round, all runs.
    `batch`: so many runs of a round are done before the next is asked for."""
    done, rounds = {}, []
    while wanted := sweep.wanted(done)[:batch]:
        rounds.append(wanted)
        done |= {config.key(): judge(config) for config in wanted}
        assert len(rounds) < 99
    return rounds, done


def rates(configs, arm):
    return [config.options.learning_rate for config in configs if config.arm == arm]


def tuned(judge, arm="none", grid=(0.01, 0.1), profile="book", **options):
    """Learning rates in the order in which they are tried, and the one that is chosen."""
    sweep = Sweep("toy", profile, (arm,), options=options)
    rounds, done = carried_out(sweep, judge)
    tuning = [rates([c for c in r if c.profile == f"{profile}_tuning"], arm) for r in rounds]
    return [r for r in tuning if r], sweep.rate(done, arm)


def by_rate(values):
    """Runs that are judged by their learning rate alone; others than these must not be tried."""
    return lambda config: ran(config, values[config.options.learning_rate])


GRIDS = {
    "inside": ({0.001: 3, 0.01: 1, 0.1: 2}, [[0.001, 0.01, 0.1]], 0.01),
    "low edge": ({0.001: 2, 0.01: 3, 0.1: 3, 1e-4: 2.5}, [[0.001, 0.01, 0.1], [1e-4]], 0.001),
    "high edge": ({0.001: 3, 0.01: 3, 0.1: 2, 1.0: 4}, [[0.001, 0.01, 0.1], [1.0]], 0.1),
    "better and better": ({10.0**n: -n for n in range(-3, 6)},
                          [[0.001, 0.01, 0.1], *([10.0**n] for n in range(6))], 1e5),
    "lower and lower": ({0.001: 2, 0.01: 3, 0.1: 3, 1e-4: 1, 1e-5: 0.5, 1e-6: 0.6},
                        [[0.001, 0.01, 0.1], [1e-4], [1e-5], [1e-6]], 1e-5),
    "all diverged": (dict.fromkeys((float(f"1e-{n}") for n in range(1, 10)), math.inf),
                     [[0.001, 0.01, 0.1], *([float(f"1e-{n}")] for n in range(4, 10))], 1e-9),
    "most diverged": ({0.001: math.inf, 0.01: math.inf, 0.1: math.inf, 1e-4: 1, 1e-5: 2},
                      [[0.001, 0.01, 0.1], [1e-4], [1e-5]], 1e-4),
}  # fmt: skip


@pytest.mark.parametrize("case", GRIDS)
def test_a_grid_grows_where_its_edge_is_best_at_most_six_times(case, plan):
    values, tried, chosen = GRIDS[case]
    plan("book", learning_rates=(0.1, 0.001, 0.01), arms=("none",))
    assert tuned(by_rate(values)) == (tried, chosen)


def test_a_new_rate_keeps_the_distance_of_its_neighbors_in_two_digits(plan):
    plan("book", learning_rates=(1e-4, 3e-4), arms=("none",))
    tried, chosen = tuned(lambda config: ran(config, config.options.learning_rate))
    assert tried == [[1e-4, 3e-4], [3.3e-5], [1.1e-5], [3.7e-6], [1.2e-6], [3.9e-7], [1.3e-7]]
    assert chosen == 1.3e-7


def test_a_single_rate_does_not_grow_and_none_is_the_options(plan):
    plan("book", learning_rates=(0.3,), arms=("none",))
    assert tuned(by_rate({0.3: 1})) == ([[0.3]], 0.3)
    plan("book", learning_rates=(), arms=("none", "batch"), of_arm={"batch": {"learning_rate": 7}})
    assert tuned(ran) == ([], 0.001)
    assert tuned(ran, "batch") == ([], 7)


def test_a_rate_that_is_set_leaves_nothing_to_tune():
    assert tuned(ran, learning_rate=0.07) == ([], 0.07)
    sweep = Sweep("toy", "book", options={"learning_rate": 0.07})
    assert {config.options.learning_rate for config in sweep.wanted({})} == {0.07}


def test_the_best_rate_is_the_lowest_of_equals():
    assert ranked({0.1: [2.0], 0.01: [1.0], 0.2: [1.0]}) == [0.01, 0.2, 0.1]
    assert ranked({0.1: [math.inf], 0.01: [math.inf]}) == [0.01, 0.1]


def test_a_sweep_tunes_on_its_own_seed_then_runs_all_seeds_and_a_few_examples_by_heart():
    sweep = Sweep("toy", "book", ("layer",))
    rounds, done = carried_out(sweep, by_rate({0.01: 2, 0.1: 1, 1.0: 3}))
    assert [[(c.profile, c.seed, c.options.learning_rate) for c in r] for r in rounds] == [
        [("book_tuning", TUNING_SEED, 0.01), ("book_tuning", TUNING_SEED, 0.1)],
        [("book_tuning", TUNING_SEED, 1.0)],
        [("book", 0, 0.1), ("book", 1, 0.1), ("book_overfit", TUNING_SEED, 0.1)],
    ]
    heart = rounds[2][2].options
    assert (heart.examples, heart.updates) == (8, 10)
    assert [run.config["seed"] for run in sweep.runs(done)] == [0, 1]
    short = replace(sweep, by_heart=False)
    assert short.wanted(dict(list(done.items())[:3])) == rounds[2][:2]


def test_a_plan_rests_on_its_tuning_its_runs_and_those_by_heart_and_on_no_others(monkeypatch):
    monkeypatch.setattr("layernorm.lab.experiments.planning.NAMES", ("toy",))
    sweep = Sweep("toy", "book")
    _, done = carried_out(sweep, ran)
    strange = ran(sweep.config("none", 77, 0.5))
    runs = [*done.values(), strange]
    assert used("toy", runs) == {run.key for run in done.values()}
    assert used("no experiment", runs) == set()


def test_an_arm_takes_the_rate_of_another_which_is_tuned_for_it():
    rounds, _ = carried_out(
        Sweep("toy", "book", ("rescaled",)), by_rate({0.01: 1, 0.1: 2, 1e-3: 2})
    )
    assert {config.arm for r in rounds[:2] for config in r} == {"none"}
    assert {config.arm for config in rounds[2]} == {"rescaled"}
    assert set(rates(rounds[2], "rescaled")) == {0.01}
    together = Sweep("toy", "book")
    first = together.wanted({})
    assert [config.arm for config in first] == ["none", "none", "layer", "layer"]


def test_one_arm_goes_on_while_another_is_still_tuned():
    sweep = Sweep("toy", "book", ("none", "layer"))
    values = by_rate({0.01: 1, 0.1: 2, 1e-3: 3})
    done = {}
    for config in sweep.wanted(done)[:2]:  # none's
        done[config.key()] = values(config)
    for config in sweep.wanted(done):
        if config.arm == "none":
            done[config.key()] = values(config)
    kinds = {(config.arm, config.profile) for config in sweep.wanted(done)}
    assert kinds == {("none", "book"), ("none", "book_overfit"), ("layer", "book_tuning")}


def test_a_sweep_that_is_interrupted_anywhere_wants_the_same_runs():
    judge = by_rate({0.01: 1, 0.1: 2, 1e-3: 3})
    sweep = Sweep("toy", "book")
    _, whole = carried_out(sweep, judge)
    for batch in (1, 2, 3):
        _, bit_by_bit = carried_out(sweep, judge, batch=batch)
        assert set(bit_by_bit) == set(whole)
    assert sweep.wanted(whole) == []
    for key in whole:
        rest = {other: run for other, run in whole.items() if other != key}
        assert [config.key() for config in sweep.wanted(rest)][:1] == [key]


def test_arms_seeds_and_options_can_be_others_than_the_plans():
    sweep = Sweep("toy", "plain", ("batch",), (7, 8), {"updates": 5, "hidden": [3]})
    configs = sweep.wanted({})
    assert [(c.arm, c.seed, c.profile) for c in configs] == [
        ("batch", 7, "plain"),
        ("batch", 8, "plain"),
        ("batch", TUNING_SEED, "plain_overfit"),
    ]
    assert [(c.options.updates, c.options.hidden) for c in configs[:2]] == [(5, (3,))] * 2
    assert configs[0].options.learning_rate == 0.05
    assert configs[0].key() != Sweep("toy", "plain", ("batch",), (7,)).wanted({})[0].key()
    assert Sweep("toy", "plain").arms == ("none", "layer", "batch")
    assert Sweep("toy", "plain").seeds == (0, 1, 2)


def test_runs_of_other_options_do_not_count_as_tuning():
    judge = by_rate({0.01: 1, 0.1: 2, 1e-3: 3})
    _, others = carried_out(Sweep("toy", "book", options={"updates": 5}), judge)
    sweep = Sweep("toy", "book", ("none",))
    assert rates(sweep.wanted(others), "none") == [0.01, 0.1]
    assert sweep.rate(others, "none") is None
    assert sweep.runs(others) == []


VALUES = {"none": (2.0, 2.2, 2.1), "layer": (1.0, 1.1, 1.2), "batch": (1.0, math.inf, 1.2)}


def plain(values=VALUES, arms=("none", "layer", "batch")):
    sweep = Sweep("toy", "plain", arms)
    done = {}
    for arm in arms:
        for seed, value in enumerate(values[arm]):
            config = sweep.config(arm, seed, sweep.rate({}, arm))
            diverged_at = None if math.isfinite(value) else 5
            run = ran(config, test=value, diverged_at=diverged_at, seconds=0.001 * (seed + 1))
            done[config.key()] = run
    return sweep, done


def test_the_table_of_arms_has_means_with_students_intervals():
    head, *rows = report.arms(*plain())
    assert head == [*report.HEAD, "mean_test_nll [95% interval]"]
    half = 4.302653 * 0.1 / math.sqrt(3)  # t of 2 degrees of freedom; the spread is 0.1
    interval = f"1.1 [{1.1 - half:.4g}, {1.1 + half:.4g}]"
    assert rows[1] == ["layer", "0.001", "3 of 3", "0", "2.00", interval]
    assert rows[0][-1] == f"2.1 [{2.1 - half:.4g}, {2.1 + half:.4g}]"
    assert rows[2] == ["batch", "0.05", "3 of 3", "1", "2.00", "not finite in 1 of 3 runs"]


def test_the_table_of_a_sweep_that_is_not_done():
    sweep = Sweep("toy", "book", ("none", "layer"))
    assert report.arms(sweep, {})[1:] == [
        ["none", "not tuned yet", "0 of 2", "0", "", ""],
        ["layer", "not tuned yet", "0 of 2", "0", "", ""],
    ]
    one = {"none": (2.0,), "layer": ()}
    rows = report.arms(*plain(one, ("none", "layer")))
    assert rows[1] == ["none", "0.001", "1 of 3", "0", "1.00", "2"]
    assert report.verdicts(sweep, {})[1:] == [
        ["layer against none", "", "0.01 nats", "not yet tested (Runs are missing: layer, none.)"]
    ]


def test_verdicts_are_paired_by_seed():
    head, row = report.verdicts(*plain())
    assert head == ["comparison", "difference [interval]", "margin", "verdict"]
    difference = [-1.0, -1.1, -0.9]
    half = 4.302653 * 0.1 / math.sqrt(3)
    mean = sum(difference) / 3
    assert row[:2] == ["layer against none", f"-1 [{mean - half:.4g}, {mean + half:.4g}]"]
    assert row[2:] == ["0.01 nats", f"supported here (for margins up to {-mean - half:.3g})"]


BOTH = {"layer against none": ("layer", "none"), "layer against batch": ("layer", "batch")}


def test_a_comparison_is_judged_alike_whichever_arms_are_run(plan):
    plan(comparisons=toy_experiment.compared(**BOTH))
    alone = report.verdicts(*plain(arms=("none", "layer")))[1:]
    assert alone == report.verdicts(*plain())[1:2]
    half = 6.205347 * 0.1 / math.sqrt(3)  # t of 2 degrees of freedom at 97.5%, two comparisons
    assert alone[0][1] == f"-1 [{-1 - half:.4g}, {-1 + half:.4g}]"


def test_arms_that_did_not_learn_by_heart_are_not_compared(plan):
    heart = Gate("fails", "train_error", 1.0, by_heart=True)
    plan(comparisons=replace(toy_experiment.COMPARISONS, gates=(heart,)))
    sweep, done = plain()
    assert "Gate failed: layer fails" in report.verdicts(sweep, done)[1][-1]

    def learn(arm, rate, error):
        config = sweep.config(arm, TUNING_SEED, rate, **get("toy").overfit)
        run = ran(config := config.in_profile("plain_overfit"))
        run.result["final"]["train_error"] = error
        done[config.key()] = run

    for arm in ("none", "layer", "batch"):
        learn(arm, sweep.rate({}, arm), 0.0)
        learn(arm, 0.77, 50.0)  # not at the rate of this sweep
    assert report.verdicts(sweep, done)[1][-1].startswith("supported here")


def test_a_metric_measured_at_the_end_alone_is_infinite_for_a_run_that_diverged(plan):
    plan(primary="size")
    rows = report.arms(*plain({"batch": (math.inf,) * 3}, ("batch",)))
    assert rows[1][-1] == "not finite in 3 of 3 runs"
    assert get("toy").primary == "size"


TWO_STAGES = {
    "first": 3,
    "seeds": tuple(range(10, 20)),
    "tuning_seeds": (1000, 1001, 1002),
    "learning_rates": (0.01, 0.1, 1.0),
    "arms": ("none", "layer", "batch"),
}


def of_seed(config, spread=0.0, tuning=((0.01, 3), (0.1, 1), (1.0, 2))):
    """A run whose loss is another one with each seed; `layer` is always 0.1 better."""
    value = dict(tuning)[config.options.learning_rate]
    if config.arm == "layer":
        value -= 0.1 + spread * (config.seed % 3 - 1)
    return ran(config, value, value)


def test_primary_arms_are_tuned_on_all_tuning_seeds_and_others_on_one(plan):
    plan("book", **TWO_STAGES)
    first = Sweep("toy", "book").wanted({})
    assert all(config.profile == "book_tuning" for config in first)
    seeds = {arm: {c.seed for c in first if c.arm == arm} for arm in ("none", "layer", "batch")}
    assert seeds == {"none": {1000, 1001, 1002}, "layer": {1000, 1001, 1002}, "batch": {1000}}
    with pytest.raises(ValueError, match="seed 1001 chooses the learning rates"):
        Sweep("toy", "book", seeds=(0, 1001))


def test_tuning_runs_can_be_a_share_of_whole_ones(plan):
    plan("book", **TWO_STAGES, tuning_share=0.5)
    sweep = Sweep("toy", "book", ("none",))
    tuning = sweep.wanted({})[0].options
    whole = sweep.config("none", 10, 0.1).options
    assert (tuning.updates, tuning.evaluations) == (15, 2)
    assert (whole.updates, whole.evaluations) == (30, 3)
    rounds, _ = carried_out(sweep, of_seed)
    assert {config.options.updates for config in rounds[1] if config.profile == "book"} == {30}


@pytest.mark.parametrize(
    ("spread", "count"),
    [  # 0.7 of the margin 0.01; t of 2 degrees of freedom is 4.303; s is the spread
        (0.0, 3),
        (0.003, 4),  # (4.303 * 0.003 / 0.007)^2 = 3.4
        (0.004, 7),  # 6.05
        (0.1, 10),  # the cap
    ],
)
def test_the_spread_of_the_first_seeds_says_how_many_follow(plan, spread, count):
    plan("book", **TWO_STAGES)
    sweep = Sweep("toy", "book")
    rounds, done = carried_out(sweep, lambda config: of_seed(config, spread))
    assert sweep.counts(done) == {"none": count, "layer": count, "batch": 5}
    finals = [[c.seed for c in r if (c.profile, c.arm) == ("book", "layer")] for r in rounds]
    assert finals[1:] == [[10, 11, 12], list(range(13, 10 + count))][: 1 + (count > 3)]
    found = sweep.verdicts(done)["layer against none"]
    assert found.difference.n == count
    assert len(sweep.runs(done)) == 2 * count + 5
    half = found.difference.high - found.difference.mean
    assert half == pytest.approx(4.30265 * spread / math.sqrt(count), rel=1e-4)


def test_seeds_that_are_given_are_not_planned(plan):
    plan("book", **TWO_STAGES)
    sweep = Sweep("toy", "book", seeds=(1, 2))
    assert sweep.counts({}) == {"none": 2, "layer": 2, "batch": 2}


@pytest.mark.parametrize(
    ("above", "tied"),
    [((0.1, -0.1, 0.05), True), ((0.1, 0.1, 0.11), False), ((0.1, -0.1, math.inf), False)],
)
def test_a_rate_that_tuning_cannot_tell_from_the_best_is_run_too(plan, above, tied):
    """Above the best rate by 0.0167 on average, with a standard error of 0.06."""
    plan("book", **TWO_STAGES)

    def judge(config):
        if config.seed < 1000 or config.arm != "layer" or config.options.learning_rate != 1.0:
            return of_seed(config)
        value = 0.9 + above[config.seed - 1000]
        return ran(config, value, value)

    sweep = Sweep("toy", "book")
    rounds, done = carried_out(sweep, judge)
    assert sweep.rates(done, "layer") == ([0.1, 1.0] if tied else [0.1])
    again = [(c.arm, c.seed) for r in rounds for c in r if c.profile == "book_next_best"]
    assert again == ([("layer", seed) for seed in (10, 11, 12)] if tied else [])
    found = sweep.verdicts(done)["layer against none"]
    assert found.difference.mean == pytest.approx(-0.1)
    if tied:  # at 1.0 it is 0.9 above none
        assert found.verdict == "inconclusive"
        assert "supported here, at another opposite here" in found.problem
    else:
        assert found.verdict == "supported here"


def test_a_tie_with_one_tuning_seed_or_one_stage_is_none(plan):
    plan("book", **TWO_STAGES | {"first": None})
    equal = ((0.01, 1), (0.1, 1), (1.0, 1), (1e-3, 2))
    rounds, done = carried_out(Sweep("toy", "book"), lambda config: of_seed(config, 0.0, equal))
    assert Sweep("toy", "book").rates(done, "layer") == [0.01]
    assert not [c for r in rounds for c in r if c.profile == "book_next_best"]


def test_a_profile_can_compare_something_else_than_the_main_one(plan):
    other = toy_experiment.compared(**{"batch against none": ("batch", "none")})
    plan("plain", comparisons=other, seeds=(0, 1, 2), arms=("none", "layer", "batch"))
    assert get("toy").compared("plain") is other
    assert get("toy").plans() == (toy_experiment.COMPARISONS, other)
    sweep, done = plain()
    assert list(sweep.verdicts(done)) == ["batch against none"]
    with pytest.raises(ValueError, match="unknown arm"):
        plan("plain", comparisons=toy_experiment.compared(x=("layer", "nobody")))


def test_rates_are_chosen_once_for_each_question(plan, monkeypatch):
    plan("book", **TWO_STAGES)
    sweep = Sweep("toy", "book")
    _, done = carried_out(sweep, of_seed)
    asked, rates = [], Sweep._rates

    def counted(self, done, arm, tried):
        asked.append(arm)
        return rates(self, done, arm, tried)

    monkeypatch.setattr(Sweep, "_rates", counted)
    for question in (sweep.wanted, sweep.runs, sweep.verdicts):
        question(done)
        assert sorted(asked) == sorted(sweep.arms)
        asked.clear()


def test_a_record_that_lacks_a_metric_is_refused_by_name():
    sweep = Sweep("toy", "book", ("none",))
    _, done = carried_out(sweep, ran)
    lame = next(config for config in sweep.wanted({}) if config.profile == "book_tuning")
    del done[lame.key()].result["final"]["mean_validation_nll"]
    expected = r"record of toy book_tuning none, seed 1000, has no final metric 'mean_validation_n"
    with pytest.raises(records.RecordError, match=expected):
        sweep.wanted(done)
    _, done = carried_out(sweep, ran)
    for run in sweep.runs(done):
        del run.result["final"]["mean_test_nll"]
    with pytest.raises(records.RecordError, match=r"toy book none, seed 0, .*'mean_test_nll', onl"):
        report.arms(sweep, done)


class Looked(dict):
    """Counts how often all runs are looked at."""

    times = 0

    def values(self):
        Looked.times += 1
        return super().values()


def test_the_plan_looks_at_all_runs_once_however_many_arms_there_are(monkeypatch):
    monkeypatch.setattr(Looked, "times", 0)
    sweep = Sweep("toy", "book")
    _, done = carried_out(sweep, lambda config: ran(config, config.options.learning_rate))
    looked = Looked(done)
    assert sweep.wanted(looked) == []
    assert Looked.times == 1
    list(sweep.used(looked))
    assert Looked.times == 3  # for the rates that are chosen, and for those that were tried
