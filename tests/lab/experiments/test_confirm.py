"""Published runs are confirmed by fresh ones: the same bits, or less than a tenth of a margin."""

import sys
from dataclasses import replace

import pytest
import torch
from lab.experiments import toy_experiment
from lab.experiments.toy_experiment import COMPARISONS, EXPERIMENT, MARGIN
from typed import layernorm

from layernorm.lab import records
from layernorm.lab.analysis.curves import over_seconds
from layernorm.lab.experiments import earlier, run
from layernorm.lab.experiments import sweep as engine
from layernorm.lab.experiments.confirm import confirm
from layernorm.lab.experiments.contrasts import less
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.sweep import carry_out
from layernorm.lab.records.published import published

MADE: dict[str, list] = {}  # the toy's sweeps, trained once
OFF = {"the same": 0.0, "a small difference": 0.0009, "a large one": 0.0011}  # margin 0.01


pytestmark = pytest.mark.usefixtures("here")


def older(record, off=0.0, metric="mean_test_nll"):
    """The record as other code would have made it, with a final metric off by that much."""
    final = {**record.result["final"]}
    final[metric] -= off
    labels = record.digest.rpartition(" ")[0]
    return replace(record, result={**record.result, "final": final}, digest=f"{labels} 0123")


@pytest.fixture
def publish(tmp_path):
    """Publish a sweep of the toy as other code made it; its own runs are gone."""

    def done(profile, change=older):
        if profile not in MADE:
            outcome = carry_out(Sweep("toy", profile), root=tmp_path / "other", workers=1)
            assert not outcome.failed
            MADE[profile] = list(outcome.done.values())
        records.publish([records.save(change(each), tmp_path / "older") for each in MADE[profile]])

    return done


def stale():
    return {(r.config["profile"], r.config["arm"]) for r in published("toy") if records.stale(r)}


def answered(answers):
    return {answer.arm: answer.confirmed for answer in answers}


def results():
    return {record.key: (record.result, record.timing, record.digest) for record in published()}


def test_an_arm_with_the_same_bits_is_confirmed_with_its_tuning(publish, trained, tmp_path):
    publish("book")
    arms = ("none", "layer", "rescaled")
    tuned = {("book_tuning", arm) for arm in arms[:2]}
    assert stale() == tuned | {(p, arm) for p in ("book", "book_overfit") for arm in arms}
    before = results()
    trained.clear()
    answers = confirm("toy", "book", arms=["layer"])
    assert trained == [("book", "layer", 0)]
    assert [str(answer) for answer in answers] == ["layer, seed 0: confirmed, the same bits"]
    assert not {(profile, arm) for profile, arm in stale() if arm == "layer"}
    assert len(stale()) == 5
    assert answered(confirm("toy", "book")) == {"none": True, "rescaled": True}
    assert stale() == set()
    assert confirm("toy", "book") == []
    assert results() == before
    (noted,) = {repr(r.confirmed) for r in published("toy", "book") if r.config["arm"] == "layer"}
    commit = records.environment()["commit"]
    assert f"'commit': {commit!r}, 'difference': 'same bits'" in noted
    text = (tmp_path / "published" / "toy-book.json").read_text()
    assert text.count('"same bits"') == len(arms)


def test_a_run_that_is_not_stale_confirms_none_that_is(publish, trained):
    publish("book", lambda each: older(each) if "tuning" in each.config["profile"] else each)
    assert stale() == {("book_tuning", "none"), ("book_tuning", "layer")}
    trained.clear()
    assert answered(confirm("toy", "book")) == {"none": True, "layer": True}
    assert [made[:2] for made in trained] == [("book_tuning", "none"), ("book_tuning", "layer")]
    assert stale() == set()


def test_only_by_heart_an_arm_cannot_be_confirmed(publish, trained):
    publish("book", lambda each: older(each) if "overfit" in each.config["profile"] else each)
    trained.clear()
    assert "what is stale is no run that this plan makes again" in str(confirm("toy", "book")[0])
    assert trained == []
    assert {profile for profile, _ in stale()} == {"book_overfit"}


def test_an_arm_is_confirmed_by_a_run_at_the_next_best_rate(publish, trained, monkeypatch):
    publish("book", lambda each: each)
    rates = Sweep.rates
    monkeypatch.setattr(Sweep, "rates", lambda *given: [*rates(*given), 0.05])
    made = run.train(EXPERIMENT.config("book", "layer", 0, learning_rate=0.05), save=False)
    made = older(replace(made, config={**made.config, "profile": "book_next_best"}))
    records.publish([records.save(made)])
    assert stale() == {("book_next_best", "layer")}
    trained.clear()
    assert answered(confirm("toy", "book")) == {"layer": True}
    assert trained == [("book_next_best", "layer", 0)]
    assert stale() == set()


@pytest.mark.parametrize("off", OFF.values(), ids=OFF)
def test_a_difference_below_a_tenth_of_the_margin_is_confirmed(publish, off):
    publish("plain", lambda record: older(record, off))
    before = results()
    none, layer, batch = confirm("toy", "plain", seed=1)
    small = off < 0.001
    assert (none.confirmed, layer.confirmed, batch.confirmed) == (small,) * 3
    assert {arm for _, arm in stale()} == (set() if small else {"none", "layer", "batch"})
    assert results() == before
    if off:
        assert (layer.seed, layer.off) == (1, {"mean_test_nll": pytest.approx(off / 0.01)})
        assert f"mean_test_nll {off / 0.01:.2g}" in str(layer)
        assert str(layer).startswith("layer, seed 1: confirmed" if small else "layer, seed 1: not")
    if small and off:
        (said,) = {r.confirmed["difference"] for r in published("toy", "plain")[:3]}
        assert said == pytest.approx(off / 0.01)


def test_what_no_comparison_reads_may_differ(publish):
    """`size` stands in no row of the plan."""
    publish("plain", lambda record: older(record, 9.0, "size"))
    assert all(answered(confirm("toy", "plain")).values())
    (said,) = {r.confirmed["difference"] for r in published("toy", "plain")}
    assert said == 0


def test_a_plan_that_compares_nothing_confirms_the_same_bits_alone(publish, monkeypatch):
    publish("plain", lambda record: older(record, 1e-9 * record.config["seed"]))
    nothing = replace(EXPERIMENT, comparisons=replace(COMPARISONS, rows=()))
    monkeypatch.setattr(toy_experiment, "EXPERIMENT", nothing)
    answers = confirm("toy", "plain", seed=1)
    assert {answer.problem for answer in answers} == {
        "other bits, and the plan compares none of its metrics"
    }
    assert all(answered(confirm("toy", "plain", seed=0)).values())


def test_runs_that_are_not_stale_need_no_note(publish):
    publish("plain", lambda record: older(record) if record.config["seed"] == 1 else record)
    assert all(answered(confirm("toy", "plain")).values())
    assert {run.config["seed"] for run in published("toy", "plain") if run.confirmed} == {1}
    assert stale() == set()


def test_times_are_those_of_the_published_run(publish, monkeypatch):
    """The fresh run shared the machine with others; a metric over seconds must not see it."""
    row = COMPARISONS.rows[0]
    contrast = less("layer", "none", over_seconds("test_nll"))
    plan = replace(COMPARISONS, rows=(replace(row, contrast=contrast),))
    monkeypatch.setattr(toy_experiment, "EXPERIMENT", replace(EXPERIMENT, comparisons=plan))

    def slower(record):
        seconds = 1.0 if record.config["arm"] == "layer" else 0.4
        return replace(older(record, 0.1), timing={"seconds_per_update": seconds})

    publish("plain", slower)
    (answer,) = confirm("toy", "plain", arms=["layer"])
    assert answer.confirmed
    assert answer.off == {MARGIN.of: pytest.approx(0, abs=1e-3)}


def test_the_command_says_what_came_of_each_arm(publish):
    publish("plain", lambda record: older(record, record.config["seed"] * 0.0011))
    command = ["records", "confirm", "toy", "--profile", "plain", "--arm", "layer"]
    said = layernorm(*command, "--seed", "1")
    assert said.exit_code == 1
    assert said.stdout.startswith("layer, seed 1: not confirmed, 0.1 is allowed; off by shares")
    said = layernorm(*command)
    assert (said.exit_code, said.stdout) == (0, "layer, seed 0: confirmed, the same bits\n")
    assert said.stderr == "1 of 1: layer seed 0\n"
    said = layernorm(*command)
    assert said.exit_code == 0
    assert said.stdout == "none of these published runs of toy, plain, is stale\n"


def test_the_margins_are_those_of_the_profile_if_it_has_its_own(publish, monkeypatch):
    wide = replace(COMPARISONS.rows[0], margin=replace(MARGIN, size=1.0))
    profile = replace(EXPERIMENT.profiles["plain"], comparisons=replace(COMPARISONS, rows=(wide,)))
    profiles = {**EXPERIMENT.profiles, "plain": profile}
    monkeypatch.setattr(toy_experiment, "EXPERIMENT", replace(EXPERIMENT, profiles=profiles))
    publish("plain", lambda record: older(record, 0.05))
    (answer,) = confirm("toy", "plain", arms=["layer"])
    assert answer.off == {"mean_test_nll": pytest.approx(0.05)}


def test_own_runs_of_older_code_stay_until_there_are_new_ones(publish, monkeypatch):
    publish("plain")
    own = [records.save(record) for record in published("toy", "plain")]
    monkeypatch.setattr(run, "train", lambda config, **rest: 1 / 0)
    assert all(answer.problem for answer in confirm("toy", "plain"))
    assert all(path.exists() for path in own)


def test_a_diverged_run_is_far_from_one_that_is_not(publish):
    publish("plain", lambda record: older(record, float("inf")))
    assert not any(answered(confirm("toy", "plain")).values())
    assert stale()


@pytest.fixture
def made_before(monkeypatch, tmp_path):
    """The code before makes the toy's runs, too: as they are now, or with another result."""

    def makes(change=lambda record: record):
        def runs(checkout, configs, profile, root, threads, _):
            torch.set_num_threads(threads)
            made = {config.key(): run.train(config, save=False) for config in configs}
            return {key: change(record) for key, record in made.items()}

        monkeypatch.setattr(earlier, "runs", runs)
        return tmp_path

    return makes


def test_on_another_processor_the_code_before_is_run_beside(publish, made_before):
    """Bits differ from those published, and not from those that the code before gives here."""
    publish("plain", lambda record: older(record, 0.5))
    assert not any(answered(confirm("toy", "plain")).values())
    answers = confirm("toy", "plain", before=made_before())
    assert [str(answer) for answer in answers] == [
        f"{arm}, seed 0: confirmed, the same bits as the earlier code on the same machine"
        for arm in ("none", "layer", "batch")
    ]
    assert stale() == set()
    (said,) = {run.confirmed["difference"] for run in published("toy", "plain")}
    assert said == "same bits as the earlier code on the same machine"


@pytest.mark.parametrize("name", ["a small difference", "a large one"])
def test_code_before_that_gives_other_bits_is_off_by_a_share_of_the_margin(
    publish, made_before, name
):
    publish("plain", lambda record: older(record, 0.5))
    answers = confirm("toy", "plain", before=made_before(lambda record: older(record, OFF[name])))
    small = name == "a small difference"
    assert set(answered(answers).values()) == {small}
    share = {"mean_test_nll": pytest.approx(OFF[name] / 0.01)}
    assert all(answer.off == share for answer in answers)
    assert "off from the earlier code on the same machine by shares" in str(answers[0])
    assert not stale() if small else stale()


def test_another_code_before_than_the_published_runs_confirms_nothing(publish, made_before):
    publish("plain", lambda record: older(record, 0.5))
    answers = confirm("toy", "plain", before=made_before(lambda _: None))
    assert not any(answered(answers).values())
    assert "is not of the code in" in str(answers[0])
    assert stale()


def test_outside_of_a_checkout_the_commit_is_unknown(publish, monkeypatch):
    monkeypatch.setattr(sys.modules["layernorm.lab.records.environment"], "_commit", lambda: None)
    publish("plain")
    assert all(answered(confirm("toy", "plain")).values())
    assert {run.confirmed["commit"] for run in published("toy", "plain")} == {"unknown"}


def test_it_goes_on_where_it_was_interrupted(publish, trained, monkeypatch):
    publish("plain")
    trained.clear()
    work = engine._work

    def interrupted(config, **rest):
        if config.arm == "batch":
            raise KeyboardInterrupt
        return work(config, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_work", interrupted)
        with pytest.raises(KeyboardInterrupt):
            confirm("toy", "plain", workers=1)
    assert stale()
    assert [arm for _, arm, _ in trained] == ["none", "layer"]
    assert all(answered(confirm("toy", "plain")).values())
    assert [arm for _, arm, _ in trained] == ["none", "layer", "batch"]


def test_own_runs_of_older_code_are_not_taken_for_fresh_ones(publish, trained):
    publish("plain")
    for record in published("toy", "plain"):
        records.save(record)
    trained.clear()
    confirm("toy", "plain")
    assert [arm for _, arm, _ in trained] == ["none", "layer", "batch"]


def test_code_that_changes_again_makes_stale_again(publish):
    publish("plain")
    confirm("toy", "plain")
    record = published("toy", "plain")[0]
    assert not records.stale(record)
    changed = [code.rpartition(" ")[0] + " 4567" for code in record.confirmed["digests"]]
    assert records.stale(replace(record, confirmed={**record.confirmed, "digests": changed}))


def test_a_run_that_is_published_later_is_not_confirmed_by_it(publish, tmp_path):
    publish("plain")
    confirm("toy", "plain")
    record = published("toy", "plain")[0]
    later = {**record.config, "seed": 9}
    path = records.save(records.Record(later, record.result, digest="Toy 89"), tmp_path / "later")
    records.publish([path])
    assert [r.config["seed"] for r in published("toy", "plain") if records.stale(r)] == [9]


def test_tuning_runs_stand_for_an_arm_that_chapters_run_live(publish, trained, tmp_path):
    publish("book")
    (tmp_path / "published" / "toy-book.json").unlink()
    trained.clear()
    answers = confirm("toy", "book", arms=["layer"])
    assert answered(answers) == {"layer": True}
    assert [run[:2] for run in trained] == [("book_tuning", "layer")]


def test_other_data_confirm_nothing(publish):
    publish("plain", lambda record: older(replace(record, config={**record.config, "data": "1"})))
    (answer, *_) = confirm("toy", "plain")
    assert "none: the data are others than those of the published run" in str(answer)
    assert stale()


def test_a_run_that_fails_is_reported(publish, monkeypatch):
    publish("plain")
    monkeypatch.setattr(run, "train", lambda config, **rest: 1 / 0)
    answers = confirm("toy", "plain", arms=["none"])
    assert "none: ZeroDivisionError: division by zero (log: " in str(answers[0])
    assert answered(answers) == {"none": False}


def test_what_cannot_be_confirmed_is_refused(publish):
    record = records.Record(
        {"experiment": "bench_x", "profile": "cpu", "arm": "a", "method": "none", "seed": 0},
        {"final": {"seconds": 1.0}},
    )
    records.publish([records.save(record)])
    for arguments, message in {
        ("bench_x", "cpu"): "holds timings, which no second run repeats: measure again",
        ("toys", "book"): "unknown experiment 'toys'; did you mean 'toy'",
        ("toy", "plain"): "has no published runs in profile 'plain'",
        ("toy", "bok"): "unknown profile 'bok'; did you mean 'book'",
    }.items():
        with pytest.raises(ValueError, match=message):
            confirm(*arguments)
    publish("plain")
    with pytest.raises(ValueError, match="unknown arm of profile 'plain' 'layr'; did you mean"):
        confirm("toy", "plain", arms=["layr"])
