"""The benchmark of whole updates: what is timed is what the definition computes, or is refused."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from lab.benchmarks.benching import Ticking, files, ticking
from typed import layernorm

from layernorm import functional, kernels
from layernorm.lab.benchmarks import training
from layernorm.lab.benchmarks.measure import MEASURED, measure, run
from layernorm.lab.benchmarks.measure.case import Case
from layernorm.lab.benchmarks.measure.process import ask
from layernorm.lab.benchmarks.measure.timing import CpuTimer
from layernorm.lab.benchmarks.training import SUBJECTS, TrainingCase, case, subjects

SMALL = {
    "mlp": (4, 6, 8, 16, 10),
    "digits": (3, 5, 8, 10),
    "lstm": (3, 4, 5, 6),
    "engine": (4, 6, 8, 10),
}
CPU = [(model, name) for model in SUBJECTS for name, s in SUBJECTS[model].items() if not s.cuda]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(case, "SHAPES", {model: (shape,) for model, shape in SMALL.items()})
    monkeypatch.setattr(case, "CASES", 8)
    monkeypatch.setattr(subjects, "CASES", 8)


def asked(model="mlp", subjects=("none", "layer/torch"), shape=None, **fields):
    fields = {"rounds": 12, "processes": 1, "implementations": subjects} | fields
    return TrainingCase(model, shape or SMALL[model], **fields)


def quick(*arguments, timer=None, **fields):
    rows = measure(asked(*arguments, **fields), timer or ticking())
    return {row.implementation: row for row in rows}


def judged(model, subject):
    make = partial(subjects.make_update, subject, model, SMALL[model], "cpu", 0)
    verdict = case.judge(subject, make)
    return verdict.error, verdict.wrong


@pytest.mark.parametrize(("model", "name"), CPU)
def test_an_update_is_the_definitions(model, name):
    error, wrong = judged(model, SUBJECTS[model][name])
    assert (wrong, 0 <= error < 0.5) == ("", True)


def test_updates_go_on_to_learn():
    subject = SUBJECTS["mlp"]["layer/torch"]
    update = subjects.make_update(subject, "mlp", SMALL["mlp"])
    losses = [float(update()) for _ in range(200)]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])
    batches = [update.cases() for _ in range(3)]
    assert [len(y) for _, y in batches] == [4, 4, 4]
    assert not torch.equal(batches[0][0], batches[1][0])
    assert torch.equal(batches[0][0], batches[2][0])  # there are eight cases


NORM, ADAM = functional.layer_norm, torch.optim.Adam
WRONG = {
    "eps": lambda x, size, g, b, eps: NORM(x, size, g, b, 1.1 * eps),
    "down the columns": lambda x, size, g, b, eps: g * NORM(x.T, x.shape[:1], eps=eps).T + b,
    "gain and bias swapped": lambda x, size, g, b, eps: NORM(x, size, b, g, eps),
    "no gradient": lambda x, size, g, b, eps: NORM(x, size, g, b.detach() + 0 * b, eps),
    "in float32 alone": lambda x, size, g, b, eps: (
        NORM(x, size, g, b, eps) * (1.1 if x.dtype == torch.float32 else 1)
    ),
    "nan": lambda *arguments: NORM(*arguments) * torch.nan,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_norm_is_named_and_not_timed(wrong, monkeypatch):
    monkeypatch.setitem(kernels._TORCH, "layer_norm", wrong)
    row = quick()["layer/torch"]
    assert row.status.startswith("wrong: ")
    assert "times what is allowed" in row.status
    assert row.seconds is None
    assert quick()["none"].ratio == 1


STEPS = {
    "none": lambda parameters, lr, **options: ADAM(parameters, lr=0.0, **options),
    "twice": lambda parameters, lr, **options: ADAM(parameters, lr=2 * lr, **options),
    "of another kind": lambda parameters, lr, **options: torch.optim.SGD(parameters, lr),
}


@pytest.mark.parametrize("optimizer", STEPS.values(), ids=STEPS)
def test_a_wrong_step_is_named(optimizer, monkeypatch):
    monkeypatch.setattr(torch.optim, "Adam", optimizer)
    assert "after the step is off by" in quick(subjects=("none",))["none"].status


def test_a_recurrent_batch_norm_with_another_eps_is_named():
    def make(shape):
        layer = subjects.BatchNormLSTM(*shape[2:], eps=1.1e-5)
        return subjects.Labelled(layer, shape[-1])

    subject = SUBJECTS["lstm"]["batch/reference"]
    assert "is off by" in judged("lstm", replace(subject, make=make))[1]


def test_the_norms_of_a_backend_are_those_that_run(monkeypatch):
    """Else all rows would time one implementation."""
    seen, run = set(), kernels.run

    def spy(operation, backend, *arguments, **options):
        seen.add((operation, backend))
        return run(operation, backend, *arguments, **options)

    monkeypatch.setattr(kernels, "run", spy)
    for method in ("batch", "layer", "rms", "group"):
        for backend in ("reference", "torch"):
            SUBJECTS["mlp"][f"{method}/{backend}"].make(SMALL["mlp"])(torch.randn(4, 6))
            assert seen == {(f"{method}_norm", backend)}
            seen.clear()
    used = []
    monkeypatch.setattr(torch, "_weight_norm", lambda v, g, dim: used.append(1) or v)
    SUBJECTS["mlp"]["weight/reference"].make(SMALL["mlp"])(torch.randn(4, 6))
    assert used == []
    SUBJECTS["mlp"]["weight/torch"].make(SMALL["mlp"])(torch.randn(4, 6))
    assert used == [1, 1]


def test_times_are_ratios_to_the_same_model_without_norms(monkeypatch):
    clock, subject = Ticking(), SUBJECTS["mlp"]["layer/torch"]

    def slow(shape):
        model = subject.make(shape)
        model.register_forward_hook(lambda *_: setattr(clock, "now", clock.now + 2))
        return model

    monkeypatch.setitem(SUBJECTS["mlp"], "layer/torch", replace(subject, make=slow))
    none, layer = quick(timer=CpuTimer(clock)).values()
    assert (none.status, layer.status) == (MEASURED, MEASURED)
    assert (none.seconds, layer.seconds) == (none.ratio, layer.ratio) == (1, 3)
    assert len(none.samples) == len(layer.samples) == 12
    assert (none.method, layer.method) == ("none", "layer")
    assert layer.peak_memory > none.peak_memory > 0


def test_another_process_times_and_judges_nothing():
    [found] = ask(asked(rounds=2, sample_seconds=1e-4), "timings", {})
    assert found.keys() == {"none", "layer/torch"}
    assert all(len(times) == 2 and min(times) > 0 for times in found.values())


def test_one_case_has_no_batch_normalization_and_a_cpu_no_kernel():
    for device in ("cpu", "cuda"):
        names = TrainingCase("mlp", (1, 6, 8, 10), device=device).implementations
        assert {"none", "layer/torch"} <= set(names)
        assert not [name for name in names if name.startswith("batch")]
        ours = [name for name in names if name.endswith("triton")]
        assert ours == (["layer/triton", "rms/triton"] if device == "cuda" else [])


@pytest.fixture
def measured(monkeypatch, counted):
    """The cases that are measured, of few implementations."""
    few = {"mlp": ["layer/torch"], "digits": ["rms/torch"], "lstm": ["layer/reference"]}
    for model, names in few.items():
        chosen = {name: SUBJECTS[model][name] for name in ("none", *names)}
        monkeypatch.setitem(SUBJECTS, model, chosen)
    real = case.plan
    quick = {"rounds": 6, "processes": 1, "sample_seconds": 1e-6}
    monkeypatch.setattr(training, "plan", lambda *a, **options: real(*a, **options | quick))
    return counted


def test_by_other_processes_it_is_measured_again(measured, monkeypatch):
    def apart(one, _):
        options = {"processes": one.processes}
        rows = Case.measured(replace(one, processes=1))
        return [replace(row, options=row.options | options) for row in rows]

    monkeypatch.setattr(case, "measure_apart", apart)
    for processes in (1, 7, 7):
        list(run(case.plan("mlp", "cpu", profile="mine", rounds=6, processes=processes)))
    assert len(measured) == 2
    assert [row.options["processes"] for row in training.recorded("mine")] == [7, 7]


def test_records_and_table_say_what_was_measured(measured):
    rows = [r for _, group in run(training.plan(None, "cpu", profile="cpu")) for r in group]
    back = training.recorded("cpu")
    (machine,) = {row.machine for row in back}
    assert machine.endswith(f", {torch.get_num_threads()} threads")
    assert [replace(row, samples=()) for row in rows] == back
    shown = training.table(back)
    assert shown.head[3:] == ["ms/update", "ratio [95% interval]", "peak MB"]
    assert [line[:3] for line in shown.lines[:2]] == [
        ["mlp", "4,6,8,16,10", "none"],
        ["mlp", "4,6,8,16,10", "layer/torch"],
    ]
    assert shown.lines[0][4] == "1.00"
    assert "[" in shown.lines[1][4]


def test_the_command_shows_writes_records_and_goes_on(measured, folders):
    call = ["bench", "training", "--models", "mlp,lstm", "--device", "cpu", "--quick"]
    call += ["--profile", "mine", "--json", str(folders / "rows.json")]
    done = layernorm(*call)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].split()[:3] == ["model", "shape", "implementation"]
    rows = json.loads((folders / "rows.json").read_text())["rows"]
    assert [row["implementation"] for row in rows] == [
        *("none", "layer/torch", "none", "layer/reference")
    ]
    assert len(files(folders / "runs" / "bench_training" / "mine")) == 4
    again = layernorm(*call).stdout
    assert again.splitlines()[:5] == done.stdout.splitlines()[:5]
    assert [one.operation for one in measured] == ["mlp", "lstm"]


def test_the_engine_is_timed_against_loops_written_by_hand(measured):
    call = ["bench", "training", "--models", "engine", "--device", "cpu", "--profile", "mine"]
    done = layernorm(*call)
    assert done.exit_code == 0, done.output
    lines = [line.split("  ") for line in done.stdout.splitlines()[1:4]]
    names = [next(filter(None, line[2:])).strip() for line in lines]
    assert names == ["bare loop", "engine", "bare loop, default Adam"]
    assert len(training.recorded("mine", "engine")) == 3


def test_the_engine_makes_the_same_updates_and_is_looked_at_as_its_loop_does():
    make = partial(subjects.make_update, model="engine", shape=SMALL["engine"])
    bare, engine = (make(SUBJECTS["engine"][name]) for name in ("bare loop", "engine"))
    assert [bare().item() for _ in range(70)] == [engine().item() for _ in range(70)]
    assert engine.trainer.kept == 70 - engine.often


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "mpl"], "got 'mpl'; did you mean 'mlp'?"),
        (["--device", "gpu"], "device: expected one of auto, cpu, cuda, got 'gpu'"),
        (["--threads", "0"], "threads must be at least 1, got 0"),
    ],
)
def test_the_command_refuses_before_it_measures(arguments, message, measured):
    done = layernorm("bench", "training", *arguments)
    assert done.exit_code == 1
    assert message in done.stderr
    assert measured == []


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        (("gru",), {"shape": (4, 6, 10)}, "model: expected one of mlp, .*, got 'gru'"),
        ((), {"shape": (4, 6)}, r"positive integers batch, .*, 10 for mlp, got \(4, 6\)"),
        ((), {"shape": (4, 6, 9)}, r"positive integers batch, .*, 10 for mlp"),
        ((), {"shape": (0, 6, 10)}, r"positive integers batch"),
        (("lstm",), {"shape": (4, 6, 10)}, r"positive integers T, B, I, H for lstm"),
        ((), {"shape": (9, 6, 8, 10)}, "a batch of at most 8, got 9"),
        (("mlp", ("layer",)), {}, "did you mean 'layer/torch'|got 'layer'"),
        (("mlp", ("batch/torch",)), {"shape": (1, 6, 10)}, "takes at least 2 cases, .* has 1"),
        ((), {"rounds": 5}, "rounds: expected at least 6, .* got 5"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, fields, message):
    with pytest.raises(ValueError, match=message):
        measure(asked(*arguments, **fields))
