"""`layernorm run` and `layernorm sweep`, as they are typed."""

import contextlib
import errno
import sys
from dataclasses import replace

import pytest
import torch
from lab.experiments import toy_experiment
from typed import layernorm, refused

from layernorm.cli.run import configuration, usual_arm
from layernorm.lab import experiments, records
from layernorm.lab.experiment_names import NAMES
from layernorm.lab.experiments import get, lock, options, report, timing
from layernorm.lab.experiments import sweep as engine
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.run import train

pytestmark = pytest.mark.usefixtures("toy")


RUN = ("run", "toy", "--arm", "layer", "--seed", "0", "--device", "cpu")


def run(*options, arm="layer"):
    result = layernorm("run", "toy", "--arm", arm, "--seed", "0", "--device", "cpu", *options)
    assert result.exit_code == 0, result.output
    return result


def test_a_run_shows_metrics_as_they_come_and_its_final_ones():
    result = run("--set", "learning_rate=0.02")
    said = result.stderr.splitlines()
    assert [line.split(":")[0] for line in said] == [f"update {n} of 30" for n in (0, 10, 20, 30)]
    record = train(get("toy").config("book", "layer", 0, learning_rate=0.02), save=False)
    final = record.result["final"]
    assert f"test_nll {final['test_nll']:.4g}" in said[-1]
    *metrics, last = result.stdout.splitlines()
    assert dict(line.split() for line in metrics) == {n: f"{v:.6g}" for n, v in final.items()}
    path = records.path(record.config)
    assert last == f"record: {path}"
    assert records.read(path).result == record.result


def test_the_same_run_again_is_done_and_fresh_trains_it_again():
    first = run()
    second = run()
    assert second.stdout == first.stdout
    assert "this run is done; --fresh trains it again" in second.stderr
    assert "update" not in second.stderr
    third = run("--fresh")
    assert third.stdout == first.stdout
    assert "update 30 of 30" in third.stderr


def test_a_run_whose_code_changed_since_says_so(monkeypatch):
    run()
    monkeypatch.setattr(records, "stale", lambda record: "Toy, summary")
    assert "since then code that Toy, summary reaches changed" in run().stderr


def test_fresh_deletes_nothing_before_all_is_checked(tmp_path):
    run("--set", "learning_rate=0.02")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    same = (*RUN, "--set", "learning_rate=0.02", "--fresh")
    assert "device must be auto" in refused(*same, "--device", "tpu")
    assert "threads must be at least 1, got 0" in refused(*same, "--threads", "0")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == before
    assert len(before) == 1


def test_a_run_goes_on_from_its_checkpoint():
    config = get("toy").config("book", "layer", 0, learning_rate=0.02)
    torch.set_num_threads(1)  # as the command
    toy_experiment.stopped(20, config)
    result = run("--set", "learning_rate=0.02")
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        "update 20 of 30",
        "update 30 of 30",
    ]
    whole = train(config, save=False).result
    assert records.read(records.path(get("toy").document(config))).result == whole


def test_a_run_that_diverges_says_where_and_is_kept():
    result = run("--set", "bad_at=17")
    assert "diverged at update 17: its loss was not finite" in result.stdout
    assert "mean_test_nll            inf" in result.stdout
    assert run("--set", "bad_at=17").stdout == result.stdout


def test_a_run_takes_the_learning_rate_that_was_tuned(here):
    assert "layer is not tuned with these options: learning_rate is 0.001" in run().stderr
    sweep = Sweep("toy", "book", ("layer",))
    rate = sweep.rate(engine.carry_out(sweep).done, "layer")
    assert configuration("toy", "book", "layer", 5, []).options.learning_rate == rate
    assert configuration("toy", "book", "layer", 5, ["learning_rate=0.3"]).options == (
        get("toy").config("book", "layer", 5, learning_rate=0.3).options
    )
    assert rate != 0.001
    assert "is not tuned with these options" in run("--set", "updates=20").stderr


def test_an_arm_that_the_profile_leaves_out_can_be_run():
    assert "wide is not tuned" in run(arm="wide").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "tou"), "unknown experiment 'tou'; did you mean 'toy'?"),
        (("run", "toy", "--profile", "bok"), "unknown profile 'bok'; did you mean 'book'?"),
        (("run", "toy", "--arm", "leyer"), "unknown arm 'leyer'; did you mean 'layer'?"),
        ((*RUN, "--set", "learning_rate=-1"), "learning_rate: the value should be greater than 0"),
        ((*RUN, "--set", "lerning_rate=1"), "unknown option 'lerning_rate'; did you mean 'lear"),
        ((*RUN, "--set", "updates"), "expected key=value"),
        ((*RUN, "--set", "hidden=" + "[" * 10**5), "option 'hidden' cannot be read: maximum recu"),
        ((*RUN, "--set", "hidden=" + "[" * 900 + "]" * 900), "recursion limit exceeded"),
        ((*RUN, "--threads", "1000000"), "threads must be at most "),
        (("sweep", "toy", "--profile", "book", "--workers", "1000000"), "workers must be at most "),
        (("experiments", "tou"), "unknown experiment 'tou'; did you mean 'toy'?"),
        ((*RUN, "--set", "batch_size=99", "--set", "learning_rate=1"), "1 to the 40 training exam"),
        (("run", "toy", "--seed", "-1"), "seed must be an integer from 0"),
        (("sweep", "toy", "--profile", "book", "--arms", "none,leyer"), "did you mean 'layer'?"),
        (("sweep", "toy", "--profile", "book", "--seeds", "1,b"), "seeds must be integers with co"),
        (("sweep", "toy", "--profile", "book", "--workers", "0"), "workers must be at least 1"),
        (("sweep", "toy", "--profile", "book", "--threads", "0"), "threads must be at least 1"),
        (("sweep", "toy", "--profile", "stendard"), "unknown profile 'stendard'"),
        ((*RUN, "--set", "seed=3"), "--set takes options of the experiment, got seed; give it as "),
        ((*RUN, "--set", "method=rms"), "got method; choose another arm"),
        (("sweep", "toy", "--set", "profile=plain"), "got profile; give it as --profile"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_exit_code_1(arguments, message):
    assert message in refused(*arguments)


def test_a_record_that_cannot_be_written_is_an_error_with_what_to_do(monkeypatch):
    def full(record, root):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as now:
        now.setattr(records, "save", full)
        result = layernorm(*RUN)
    assert result.exit_code == 1
    assert "No space left on device; make room and run it again" in result.stderr.splitlines()[-1]
    run()


SWEEP = ("sweep", "toy", "--profile", "book", "--arms", "none,layer", "--seeds", "0,1,2")


def test_a_sweep_ends_with_the_table_of_arms_and_verdicts(here):
    result = layernorm(*SWEEP, "--set", "updates=12", "--device", "cpu")
    assert result.exit_code == 0, result.output
    head, none, layer, gap, compared, verdict = result.stdout.splitlines()
    assert head.split("  ")[0] == "arm"
    assert head.endswith("mean_test_nll [95% interval]")
    assert [line.split()[0] for line in (none, layer)] == ["none", "layer"]
    assert "3 of 3" in none
    assert gap == ""
    assert compared.startswith("comparison")
    assert verdict.startswith("layer against none")
    again = layernorm(*SWEEP, "--set", "updates=12", "--no-time")
    rows = [line.split("3 of 3")[0] for line in again.stdout.splitlines()]
    assert rows == [line.split("3 of 3")[0] for line in result.stdout.splitlines()]


def test_a_sweep_counts_the_runs_that_are_published(here):
    layernorm(*SWEEP, "--no-time")
    for own in records.publish([records.path(run.config) for run in records.runs("toy", "book")]):
        assert own.exists()
    assert "published" not in layernorm(*SWEEP, "--no-time").stderr
    for own in records.runs("toy", "book")[:2]:
        records.path(own.config).unlink()
    assert "2 of 6 runs are published ones of this package" in layernorm(*SWEEP, "--no-time").stderr


def test_what_is_run_if_nothing_is_named(here, monkeypatch):
    """The arm `layer`, else the first with norms; the profile `standard`, else `book`."""
    assert usual_arm("toy", "book") == "layer"
    assert usual_arm("adding", "book") == "paper"
    swept = []
    monkeypatch.setattr("layernorm.cli.sweep._carried_out", lambda plan, *_: swept.append(plan))
    for name in ("toy", "mnist"):
        assert layernorm("sweep", name).exit_code == 1  # there is no outcome
    assert [plan.profile for plan in swept] == ["book", "standard"]


def test_a_sweep_with_a_failure_reports_it_and_finishes_the_rest(here):
    result = layernorm("sweep", "toy", "--profile", "faulty", "--arms", "none,broken,layer")
    assert result.exit_code == 1
    arms, _ = result.stdout.split("\n\n")
    rows = {line.split()[0]: line for line in arms.splitlines()}
    assert "1 of 1" in rows["none"]
    assert "1 of 1" in rows["layer"]
    assert "0 of 1" in rows["broken"]
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert any(
        line.startswith("Error: broken seed 0 failed: RuntimeError: the toy is broken (log: ")
        for line in errors
    )
    assert len(errors) == 2  # the seed, and the run by heart


def test_a_sweep_of_old_runs_says_so(here, monkeypatch):
    layernorm(*SWEEP, "--no-time")
    monkeypatch.setattr(records, "stale", lambda record: "Toy")
    result = layernorm(*SWEEP, "--no-time")
    assert "6 runs were made before the code they depend on changed" in result.stderr


def test_a_sweep_made_anew_is_not_compared_by_runs_of_older_code(here, monkeypatch):
    """Such as a run of the tuning at a rate that is no longer tried."""
    layernorm(*SWEEP, "--no-time")
    tuned = records.runs("toy", "book_tuning")[0]
    options = {**tuned.config["options"], "learning_rate": 0.5}
    older = replace(tuned, config={**tuned.config, "options": options}, digest=tuned.digest + "0")
    records.save(older)
    compared, table = [], report.arms
    monkeypatch.setattr(
        report, "arms", lambda plan, done: compared.append(done) or table(plan, done)
    )
    assert layernorm(*SWEEP, "--anew").exit_code == 0
    assert records.stale(older)
    assert not any(map(records.stale, compared[0].values()))


def test_arms_are_timed_when_no_other_sweep_is_at_work(here, monkeypatch):
    other, timed = contextlib.ExitStack(), []
    place = lock.place(get("toy").config("plain", "layer", 0))
    monkeypatch.setattr(timing, "time_arms", lambda *_, **__: timed.append(lock.busy(place)))
    monkeypatch.setattr(lock.time, "sleep", lambda _: other.close())
    with other:
        other.enter_context(lock.held(place))
        result = layernorm(*SWEEP)
    assert timed == [False]
    assert result.stderr.count("waiting for runs of other sweeps") == 1


def broken_at(monkeypatch, step):
    loss = toy_experiment.Toy.loss

    def interrupted(self, now):
        if now == step:
            raise KeyboardInterrupt
        return loss(self, now)

    monkeypatch.setattr(toy_experiment.Toy, "loss", interrupted)


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupted_run_says_what_was_kept_and_how_to_go_on(monkeypatch, kept):
    whole = run("--set", "noise=0.2").stdout
    with monkeypatch.context() as now:
        broken_at(now, 15)
        if kept:
            now.setattr("layernorm.lab.experiments.run.APART", 0.0)
        result = layernorm(*RUN, "--set", "noise=0.2", "--fresh")
    assert result.exit_code == 130
    assert result.stdout == ""
    *_, said, last = result.stderr.splitlines()
    assert last == "Stopped."
    again = run("--set", "noise=0.2")
    first = again.stderr.splitlines()[1]
    if kept:
        assert said.endswith("update 10 of 30 is kept: the same command goes on from there")
        assert first.startswith("update 20 of 30")
    else:
        assert said.endswith("before its first checkpoint: the same command starts anew")
        assert first.startswith("update 0 of 30")
    assert again.stdout == whole


def test_an_interrupted_sweep_says_what_was_kept_and_how_to_go_on(here, monkeypatch):
    made = []
    train = engine.run.train

    def third(config, **rest):
        made.append(config)
        if len(made) == 3:
            raise KeyboardInterrupt
        return train(config, **rest)

    with monkeypatch.context() as now:
        now.setattr(engine.run, "train", third)
        result = layernorm(*SWEEP, "--no-time", "--workers", "1")
    assert result.exit_code == 130
    assert "stopped after 2 runs, which are kept; the same command goes on" in result.stderr
    assert result.stderr.endswith("Stopped.\n")
    assert layernorm(*SWEEP, "--no-time").exit_code == 0


def test_a_run_that_another_process_is_at_is_waited_for(monkeypatch):
    config = get("toy").config("book", "layer", 0, learning_rate=0.02)
    theirs = train(config, save=False)
    other = contextlib.ExitStack()
    other.enter_context(lock.held(lock.place(config)))
    other.callback(lambda: records.save(theirs))  # before it lets go
    monkeypatch.setattr(lock.time, "sleep", lambda _: other.close())
    result = run("--set", "learning_rate=0.02")
    assert "waiting for another process that is at this run" in result.stderr
    assert "this run is done; --fresh trains it again" in result.stderr


def test_experiments_are_listed_and_shown():
    for command in ("run", "sweep"):
        said = " ".join(layernorm(command, "--help").stdout.split())
        assert f"`layernorm experiments` lists them: {', '.join(NAMES)}." in said
        assert "`layernorm experiments NAME` shows" in said
    listed = layernorm("experiments").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(experiments.NAMES)
    shown = layernorm("experiments", "toy").stdout
    assert "arms: none, layer, batch, rescaled, broken, deadly, wide\n" in shown
    assert "--profile plain: seeds 0, 1, 2\n  arms: none, layer, batch\n" in shown
    assert "  options: updates=20 evaluations=2\n" in shown
    assert "`hidden`: units of each layer." in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("--set"))
    sets = line.split(": ")[1].split()
    values = options.assigned(sets)
    assert options.make(toy_experiment.ToyOptions, values) == toy_experiment.ToyOptions()


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch, command):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    said = refused(command, "toy", "--profile", "book", "--set", "learning_rate=0.1")
    assert "tqdm" in said
    assert said.endswith("; install it with: pip install 'layernorm[experiments]'")
