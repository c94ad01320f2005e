"""The recurrent benchmark: its oracles, its gate, its tables, its processes."""

from dataclasses import replace

import pytest
import torch
from lab.benchmarks.benching import ticking
from torch import nn

from layernorm.lab import records
from layernorm.lab.benchmarks import recurrent
from layernorm.lab.benchmarks.measure import Row, measure, memory, process, resume, run
from layernorm.lab.benchmarks.recurrent import SUBJECTS, RecurrentCase, case, loops, peers, tables
from layernorm.lab.benchmarks.recurrent.case import MODES, ON_CPU
from layernorm.lab.benchmarks.recurrent.plan import plan
from layernorm.lab.benchmarks.recurrent.subjects import WITHOUT, Subject
from layernorm.lab.claims import chapter_11
from layernorm.recurrent import LayerNormLSTM, cpu, definition

SHAPE = (4, 2, 3, 5)


def asked(kind="lstm", shape=SHAPE, mode="training", subjects=ON_CPU, **fields):
    fields = {"rounds": 6, "processes": 1} | fields
    return RecurrentCase(kind, shape, mode=mode, implementations=subjects, **fields)


def quick(*arguments, **fields):
    rows = measure(asked(*arguments, **fields), ticking())
    return {row.implementation: row for row in rows}


def drawn(module, *, dtype=torch.float64):
    recurrent.fill(module, 5, seed=3)
    return dict(module.to(dtype).named_parameters())


def test_the_loops_without_norms_are_torchs_layers():
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    for layer, loop in ((nn.LSTM(3, 5), loops.lstm), (nn.GRU(3, 5), loops.gru)):
        torch.testing.assert_close(loop(x, **drawn(layer)), layer(x)[0], rtol=0, atol=1e-14)


def test_the_loops_with_norms_are_the_definitions():
    x, zero = torch.randn(4, 2, 3, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.float64)
    p = drawn(LayerNormLSTM(3, 5))
    pair = {n: (p[f"ln_{n}_weight_l0"], p[f"ln_{n}_bias_l0"]) for n in ("ih", "hh", "c")}
    w = definition.LSTMWeights(
        p["weight_ih_l0"], p["weight_hh_l0"], p["bias_ih_l0"], pair["ih"], pair["hh"], pair["c"]
    )
    paper, _, _ = definition.lstm(x.flatten(0, 1), None, zero, zero, w)
    torch.testing.assert_close(loops.ln_lstm(x, **p).flatten(0, 1), paper, rtol=0, atol=1e-14)
    bare = w._replace(b=None)
    carried, _, _ = definition.lstm(x.flatten(0, 1), None, zero, zero, bare, variant="carried")
    del p["bias_ih_l0"]
    got = loops.carried_lstm(x, **p).flatten(0, 1)
    torch.testing.assert_close(got, carried, rtol=0, atol=1e-14)
    assert (carried - paper).abs().max() > 0.01


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", recurrent.KINDS)
def test_every_implementation_passes_the_gate_and_is_timed(kind, mode):
    names = tuple(name for name in ON_CPU if name not in peers.MODULES)  # which need a GPU
    if cpu.missing() is not None:
        names = tuple(name for name in names if name != WITHOUT)
    rows = quick(kind, mode=mode, subjects=names)
    assert [(row.implementation, row.status) for row in rows.values()] == [
        (name, "measured") for name in names
    ]
    for row in rows.values():
        assert 0 < row.error < 1
        assert row.ratio == 1
    path = rows["ours"].options["path"]
    assert path == "fused" or path.startswith('backend "fused" cannot compute this: ')


@pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("batch", "units"), [(5, 7), (3, 70), (33, 40)])
@pytest.mark.parametrize(("kind", "loop"), [("lstm", loops.lstm), ("gru", loops.gru)])
def test_the_form_without_norms_is_the_loop_without_norms(kind, loop, batch, units, threads):
    """Outputs and gradients, in teams that divide units and squads that divide sequences."""
    module = SUBJECTS[kind][WITHOUT].make(3, units).double()
    recurrent.fill(module, units, seed=3)
    x = torch.randn(4, batch, 3, dtype=torch.float64)
    gradient = torch.randn(4, batch, units, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = []
        parameters = dict(module.named_parameters())
        for function in (lambda x: module(x)[0], lambda x: loop(x, **parameters)):
            leaf = x.clone().requires_grad_()
            y = function(leaf)
            found.append([y, *torch.autograd.grad(y, [leaf, *parameters.values()], gradient)])
    finally:
        torch.set_num_threads(before)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(module(x)[0], found[0][0], rtol=0, atol=1e-14)


class Faulty(LayerNormLSTM):
    """Ours, with the fault that a test asks for; counts its calls."""

    fault, calls = None, 0

    def forward(self, x):
        Faulty.calls += 1
        y, state = super().forward(x)
        return Faulty.fault(self, x, y), state


def tiring(layer, x, y):
    return y * (Faulty.calls <= 4)


def half_a_gradient(layer, x, y):
    return y - 0.001 * (layer.bias_ih_l0 - layer.bias_ih_l0.detach()).sum()


FAULTS = {
    "value": (lambda _, x, y: y * (1 + 1e-4), "wrong: "),
    "half a gradient": (half_a_gradient, "wrong: gradient of bias_ih_l0 is off by"),
    "float32 alone": (lambda _, x, y: y.bfloat16().to(x) if x.itemsize == 4 else y, "wrong: "),
    "float64 alone": (lambda _, x, y: y.float().to(x), "wrong: y is off by"),
    "tires": (tiring, "wrong after timing: y is off by"),
    "raises": (lambda _, x, y: y @ y, "failed: RuntimeError: "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_layer_is_named_and_has_no_time(fault, monkeypatch):
    function, status = FAULTS[fault]
    monkeypatch.setattr(Faulty, "fault", staticmethod(function))
    monkeypatch.setattr(Faulty, "calls", 0)
    monkeypatch.setitem(SUBJECTS["lstm"], "ours", Subject(Faulty, loops.ln_lstm))
    rows = quick(subjects=("ours", "torch"))
    assert rows["ours"].status.startswith(status)
    assert rows["ours"].seconds is None
    assert rows["torch"].ratio == 1
    told = tables.verdict(list(rows.values()))
    assert told.startswith(f"lstm training 4x2x3x5 float32 ours: {rows['ours'].status}\n")
    if fault not in ("tires", "raises"):
        assert Faulty.calls == 2  # in float64 and float32, never for the clock


def test_modules_of_one_seed_have_the_same_values_under_the_same_names():
    ours, plain = drawn(LayerNormLSTM(3, 5)), drawn(nn.LSTM(3, 5))
    assert torch.equal(ours["weight_hh_l0"], plain["weight_hh_l0"])
    assert not torch.equal(plain["bias_ih_l0"], plain["bias_hh_l0"])
    large = LayerNormLSTM(300, 400)
    recurrent.fill(large, 400, seed=0)
    assert large.ln_ih_weight_l0.mean().item() == pytest.approx(1, abs=0.02)
    assert large.ln_hh_weight_l0.mean().item() == pytest.approx(0.5, abs=0.02)
    assert large.weight_ih_l0.abs().max().item() == pytest.approx(0.05, rel=1e-3)


def test_held_memory_counts_what_the_graph_keeps_and_not_what_is_released():
    x = torch.randn(1000, requires_grad=True)
    one = 4 * 1000
    assert memory.held(x.exp) == one  # the result, which the graph saves too
    assert memory.held(lambda: (x.exp() * 2).sum(), [x]) == one + 4
    assert memory.held(lambda: x.square().exp(), [x]) == one
    assert memory.held(lambda: x.square().exp()) == 2 * one  # x itself
    assert memory.held(lambda: x.detach().exp().sum()) == 4


def test_held_memory_counts_storages_that_are_kept_from_call_to_call():
    kept = torch.empty(5000)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(kept[:10].copy_(x))
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    x = torch.randn(10, requires_grad=True)
    assert memory.held(lambda: Doubled.apply(x), [x]) == 40 + 20_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure(asked("ltsm")), "kind: expected one of lstm, gru, .*mean 'lstm'"),
        (lambda: measure(asked(mode="train")), "mode: .*did you mean 'training'"),
        (lambda: measure(asked(subjects=("our",))), "subjects: .*did you mean 'ours'"),
        (lambda: measure(asked(shape=(4, 2, 3))), r"four positive integers T, .* got \(4, 2, 3\)"),
        (lambda: measure(asked(rounds=5, processes=1)), "rounds: expected at least 6"),
        (lambda: plan(kind="lstn"), "kind: .*did you mean 'lstm'"),
        (lambda: plan(mode="inferense"), "mode: .*did you mean 'inference'"),
        (lambda: plan(subjects="torch,skript"), "subjects: .*did you mean 'script'"),
        (lambda: plan(shapes="1,2,3,4;5,6,7"), "shapes: .*got '5,6,7'"),
        (lambda: plan(shapes="1,2,3,0"), "shapes: .*got '1,2,3,0'"),
        (lambda: plan(shapes="1,2,3,²"), "shapes: .*got '1,2,3,²'"),
        (lambda: plan(huge_pages="of"), "huge-pages: .*did you mean 'off'"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_plan_from_words():
    got = plan("gru", "training", "1,2,3,4; 5,6,7,8", "ours, torch", 1, 9, "off", profile="mine")
    assert got == tuple(
        RecurrentCase(
            "gru", shape, rounds=9, threads=1, profile="mine", with_memory=True,
            implementations=("ours", "torch"),
        )
        for shape in ((1, 2, 3, 4), (5, 6, 7, 8))
    )  # fmt: skip
    every = plan()
    assert len(every) == 9 * 2 * 2 * 2
    assert {case.threads for case in every} == {torch.get_num_threads()}
    here = tuple(name for name in ON_CPU if name not in peers.MODULES)  # those need a GPU
    assert WITHOUT in here
    assert {case.implementations for case in every if not case.huge_pages} == {here}
    assert {case.implementations for case in every if case.huge_pages} == {("ours", "torch")}
    assert {case.with_memory for case in every if case.huge_pages} == {False}
    assert {case.implementations for case in plan(huge_pages="on")} == {here}


def made(implementation, shape, ratio, mode="training", pages="off", kind="lstm", **fields):
    row = Row("recurrent", "layer", implementation, "torch", mode, shape, "float32", "cpu", 0, "")
    options = {"kind": kind, "rounds": 6, "threads": 1, "huge_pages": pages, "machine": "here"}
    times = {"seconds": 0.001 * ratio, "p20": 0.001, "p80": 0.002, "ratio": ratio}
    interval = {"ratio_low": ratio - 0.1, "ratio_high": ratio + 0.1}
    filled = {"status": "measured", "error": 0.5, "options": options}
    return replace(row, **{**filled, **times, **interval, **fields})


def two_shapes():
    return [
        made("ours", (1, 2, 3, 4), 0.5, held_memory=1_000_000, resident_memory=3_000_000),
        made("torch", (1, 2, 3, 4), 1.0, held_memory=2_000_000, resident_memory=2_000_000),
        made("ours", (5, 6, 7, 8), 2.0),
        made("torch", (5, 6, 7, 8), 1.0),
        made("torch", (1, 2, 3, 4), 1.0, pages="on"),
    ]


def test_tables_show_ratios_intervals_and_geometric_means():
    off, on, megabytes = tables.tables(two_shapes())
    assert off.title == (
        "LSTM, training, float32, threads: 1, huge pages off: ratio of times to nn.LSTM"
    )
    assert off.head == ["T,B,I,H", "nn.LSTM ms", "ours"]
    assert off.lines == [
        ["1,2,3,4", "1.00", "0.50 [0.40, 0.60]"],
        ["5,6,7,8", "1.00", "2.00 [1.90, 2.10]"],
        ["geometric mean", "", "1.00"],
    ]
    assert off.text().splitlines()[2] == "1,2,3,4         1.00        0.50 [0.40, 0.60]"
    assert [line[0] for line in on.lines] == ["1,2,3,4", "geometric mean"]
    assert megabytes.lines == [["1,2,3,4", "2.0", "1.0", "0.50", "2.0", "3.0", "1.50"]]


def test_a_geometric_mean_needs_every_ratio():
    rows = two_shapes()
    assert tables.geometric_mean(rows[:2]) == pytest.approx(0.5**0.5)
    assert tables.geometric_mean([*rows, replace(rows[0], ratio=None)]) is None
    assert tables.geometric_mean([]) is None
    (*_, means) = tables.speeds([rows[0], rows[1], rows[3]]).lines
    assert means == ["geometric mean", "", ""]  # records leave out ours at one shape: it was wrong
    assert tables.speeds([]).lines == [["geometric mean"]]


def save(rows, profile):
    for row in rows:
        records.save(resume.record_of(row, profile))


def test_records_give_the_rows_back():
    rows = two_shapes()
    save([*rows, made("loop", (1, 2, 3, 4), 3.0, status="wrong: y")], "mine")
    back = tables.recorded("mine")
    assert sorted(back, key=str) == sorted(rows, key=str)
    assert [row.options["huge_pages"] for row in back] == ["off"] * 4 + ["on"]
    assert "threads: 1, torch " in resume.origin("recurrent", "mine")
    save([replace(rows[0], options={**rows[0].options, "machine": "there"})], "mine")
    with pytest.raises(records.RecordError, match=r"several machines \(here; there\): give each"):
        tables.recorded("mine")
    with pytest.raises(records.RecordError, match="layernorm bench recurrent --profile other"):
        resume.origin("recurrent", "other")


def test_a_process_of_its_own_measures_and_answers(monkeypatch):
    one = asked("gru", mode="inference", subjects=("ours", "torch"), huge_pages=True)
    ((_, rows),) = run([replace(one, profile="mine")])
    assert {r.implementation: r.status for r in rows} == dict.fromkeys(
        ("ours", "torch"), "measured"
    )
    assert all(row.options["huge_pages"] == "on" for row in rows)
    assert all(len(row.samples) == 6 and row.seconds > 0 for row in rows)
    assert all(row.shape == SHAPE and row.machine.endswith(", 1 threads") for row in rows)
    monkeypatch.setattr(case, "measure_apart", None)
    ((_, back),) = run([replace(one, profile="mine")])
    assert back == [replace(row, samples=()) for row in rows]


def test_a_process_grows_at_least_by_what_the_graph_holds():
    one = asked("gru", (40, 32, 64, 64))
    ready = case.Run(one, "loop")
    expected = memory.held(ready.forward, [ready.x, *ready.module.parameters()])
    held, grown = recurrent.memory_of(one, "loop")
    assert held == expected > 4_000_000
    assert grown is None or 0.9 * held < grown < 4 * held


def test_memory_is_asked_for_ours_and_torchs_in_training_before_the_times(monkeypatch):
    seen = []
    found = [made(name, (1, 2, 3, 4), 1.0) for name in ("ours", "torch", "loop")]
    found.append(made("ours", (1, 2, 3, 4), 1.0, status="wrong: y"))
    monkeypatch.setattr(case, "measure_apart", lambda *_: seen.append("times") or found)
    monkeypatch.setattr(case, "memory_of", lambda _, name: seen.append(name) or (1, 2))
    one = asked(with_memory=True)
    rows = one.measured()
    assert seen == ["ours", "torch", "times"]
    assert [row.held_memory for row in rows] == [1, 1, None, None]
    assert [row.resident_memory for row in rows] == [2, 2, None, None]
    seen.clear()
    assert replace(one, with_memory=False).measured() == found
    assert replace(one, mode="inference").measured() == found
    replace(one, implementations=("loop",)).measured()
    assert seen == ["times"] * 3


def test_huge_pages_are_asked_for_in_the_environment(monkeypatch):
    seen = []
    monkeypatch.setattr(case, "measure_apart", lambda _, variables: seen.append(variables) or [])
    asked(huge_pages=True).measured()
    asked().measured()
    assert seen == [{"THP_MEM_ALLOC_ENABLE": "1"}, {}]


def test_a_process_that_fails_is_an_error_and_told(capfd):
    one = asked("ltsm")
    with pytest.raises(ChildProcessError, match="ended with status 1"):
        process.measure_apart(one, {})
    assert "kind: expected one of lstm, gru" in capfd.readouterr().err


VERDICTS = {  # ratio of ours, of the loop, of the loop without norms; verdicts of the claims
    "fast": (0.9, 4.0, 2.0, "supported here", "supported here", "opposite here"),
    "slow": (1.5, 2.0, 2.5, "opposite here", "opposite here", "supported here"),
    "alike": (1.0, 2.0, 2.0, "supported here", "no difference here", "supported here"),
    "between": (1.05, 2.1, 2.0, "inconclusive", "inconclusive", "inconclusive"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_claims_about_cost_follow_the_published_record(case):
    claims = (
        *(chapter_11.no_significant_cost_per_step, chapter_11.slower_per_update),
        chapter_11.no_significant_cost_of_norms,
    )
    assert [claim().verdict for claim in claims] == ["not yet tested"] * 3
    ours, loop, plain, *expected = VERDICTS[case]
    ratios = {"torch": 1.0, "ours": ours, "loop": loop, "plain loop": plain}
    rows = [
        made(name, shape, ratio, kind=kind, ratio_low=ratio - 0.01, ratio_high=ratio + 0.01)
        for name, ratio in ratios.items()
        for shape in ((1, 2, 3, 4), (5, 6, 7, 8))
        for kind in recurrent.KINDS
    ]
    rows += [
        made("ours", (1, 2, 3, 4), 9.0, pages="on"),
        made("ours", (1, 2, 3, 4), 9.0, "inference"),
    ]
    save(rows, "cpu")
    assert [claim().verdict for claim in claims] == expected
    both = [claim().table[0]["ratio"].split()[0] for claim in claims[1:]]
    assert both == [f"{loop / plain:.3g}"] * 2  # with norms over without, whatever is said of it


def test_one_shape_is_enough_to_leave_a_claim_open():
    def judged(gru):
        ends = {("lstm", (1,)): (0.8, 0.9), ("gru", (1,)): gru}
        ratios = {place: chapter_11.Ratio(sum(two) / 2, *two, 10) for place, two in ends.items()}
        return chapter_11.judged(ratios, "not worse")

    assert judged((1.2, 1.3)).verdict == "depends"
    assert judged((1.0, 1.3)).verdict == "inconclusive"
    found = judged((1.2, 1.3))
    assert "LSTM supported here on 1; GRU opposite here on 1" in found.evidence
    assert [shown["verdict"] for shown in found.table] == ["supported here", "opposite here"]
    assert found.table[1] == {
        "comparison": "GRU 1",
        "n": "10",
        "ratio": "1.25 [1.2, 1.3]",
        "margin": "1.05",
        "verdict": "opposite here",
    }
