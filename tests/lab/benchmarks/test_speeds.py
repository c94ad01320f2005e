"""The file of speeds: what benchmarks found on a GPU, as `backend="auto"` reads it."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch

from layernorm.kernels import speeds as library
from layernorm.lab import records
from layernorm.lab.benchmarks import speeds
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.benchmarks.measure.recording import record_of
from layernorm.lab.benchmarks.recurrent.plan import gpu_plan

GPU, CPU = "Made-up GPU", torch.device("cpu")
UNITS = (64, 96, 128, 200, 256, 400, 512, 768, 1024)


def of_norm(arm="triton", high=0.8, mode="forward", shape=(16, 32, 2), **fields):
    row = Row("layer", "layer", arm, "torch", mode, shape, "float32", "cuda", 0, "measured",
              options={"machine": GPU, "rounds": 6})  # fmt: skip
    return replace(row, seconds=1.0, ratio=0.7, ratio_low=0.6, ratio_high=high, error=0.1, **fields)


def of_layer(arm, low, high, tf32=False, **fields):
    options = {"machine": GPU, "rounds": 6, "kind": "gru", "tf32": tf32}
    row = Row("recurrent", "layer", arm, "torch", "training", (10, 4, 8, 64), "bfloat16", "cuda", 0,
              "measured", options=options, error=0.1, seconds=1.0, p20=0.5, p80=2.0)  # fmt: skip
    return replace(row, ratio=low, ratio_low=low, ratio_high=high, **fields)


def entries(*rows):
    """Of these rows, and of torch's own norm beside each of ours."""
    torchs = [
        replace(row, implementation="torch", seconds=1.5, ratio=1.0, host=0.1)
        for row in rows
        if row.implementation == "triton" and row.baseline == "torch"
    ]
    return speeds.entries([record_of(row, "trial") for row in (*rows, *torchs)])


def entry(ratio, operation="layer_norm", dtype="float32", gradient=False, shape=(16, 64)):
    told = {"operation": operation, "device": GPU, "dtype": dtype, "gradient": gradient}
    return {**told, "shape": shape, "ratio_high": ratio}


def test_a_norm_is_told_with_the_slowest_that_was_measured():
    found = entries(of_norm(), of_norm(shape=(16, 64), high=0.9), of_norm(mode="forward+backward"))
    assert found == [entry(0.9), entry(0.8, gradient=True)]
    assert entries(of_norm(benchmark="rms")) == [entry(0.8, "rms_norm")]


def test_a_norm_that_takes_long_to_queue_is_as_slow_as_that():
    assert entries(of_norm(host=0.5)) == [entry(0.8)]
    assert entries(of_norm(host=3.0)) == [entry(2.0)]
    assert speeds.entries([record_of(of_norm(), "trial")]) == []  # without torch's beside it


@pytest.mark.parametrize(
    "row",
    [
        of_norm(arm="definition"),
        of_norm(mode="backward"),
        of_norm(benchmark="layer_graph"),
        of_norm(benchmark="residual"),
        of_norm(baseline="definition"),
        of_norm(device="cpu"),
        of_norm(status="wrong: output 0"),
    ],
    ids=str,
)
def test_what_does_not_count(row):
    assert entries(row) == []


def test_what_is_stale_does_not_count(monkeypatch):
    monkeypatch.setattr(records, "stale", lambda record: ["layernorm.kernels"])
    assert entries(of_norm()) == []


def test_records_of_experiments_are_left_out():
    config = {"experiment": "mnist", "profile": "book", "arm": "layer", "method": "layer"}
    trained = records.Record({**config, "seed": 0}, {"final": {"loss": 1.0}})
    rows = [record_of(row, "trial") for row in (of_norm(), of_norm(arm="torch"))]
    assert speeds.entries([trained, *rows]) == [entry(1.0)]


def test_all_steps_in_one_kernel_are_told_relative_to_the_loop_of_steps():
    steps, one = of_layer("fused", 0.4, 0.6), of_layer("persistent", 0.2, 0.3)
    told = {"dtype": "bfloat16", "gradient": True, "shape": (10, 4, 8, 64)}
    assert entries(steps, one) == [entry(0.75, "gru_persistent", **told)]
    assert entries(one) == []


def test_a_recurrent_layer_is_told_relative_to_its_definition():
    """The interval from the ends of both, as torch's layer relates them; else from percentiles."""
    ours, definition = of_layer("fused", 0.4, 0.6), of_layer("definition", 2.0, 3.0)
    told = {"operation": "gru", "dtype": "bfloat16", "gradient": True, "shape": (10, 4, 8, 64)}
    assert entries(ours, definition) == [entry(0.3, **told)]
    assert entries(ours) == []
    assert entries(*(replace(row, options={**row.options, "tf32": True})
                     for row in (ours, definition))) == []  # fmt: skip
    none = {"ratio": None, "ratio_low": None, "ratio_high": None}
    assert entries(replace(ours, **none), replace(definition, **none)) == [entry(4.0, **told)]


def found_for_layers(seconds):
    """The entries where all that is planned for recurrent layers takes so long."""
    rows = [
        replace(row, options={**row.options, "machine": GPU}, error=0.1, seconds=s, p20=s, p80=s)
        for case in gpu_plan()
        for row, s in ((case.blank(n), seconds.get(n, 1.0)) for n in case.implementations)
    ]
    return speeds.entries([record_of(row, "cuda") for row in rows])


FAST, SLOW = {"fused": 0.5, "persistent": 0.25}, {"fused": 2.0, "persistent": 4.0}


@pytest.mark.parametrize(("seconds", "expected"), [(FAST, True), (SLOW, False)])
def test_the_plan_decides_for_recurrent_layers_of_usual_sizes(seconds, expected, monkeypatch):
    """In training and inference, also where a graph may meet any number of rows."""
    made = found_for_layers(seconds)
    monkeypatch.setattr(library, "entries", lambda: made)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: GPU)
    library.ratios.cache_clear()
    kinds = [(kind, dtype) for kind in ("lstm", "gru") for dtype in ("bfloat16", "float32")]
    kinds += [("lstm_persistent", "bfloat16"), ("gru_persistent", "bfloat16")]
    for (kind, dtype), gradient in product(kinds, (True, False)):
        number = getattr(torch, dtype)
        known = library.ratios(kind, GPU, dtype, gradient)
        assert all(len(known[units]) == 3 for units in (64, 128, 256, 512, 1024))
        for units, rows in product(UNITS, (40, 640, 6400, 50_176, None)):
            case = (kind, CPU, number, gradient, rows, units)
            assert library.faster(*case) is expected, case
    library.ratios.cache_clear()


def test_entries_of_a_gpu_are_not_lost_unless_that_is_asked_for(tmp_path, monkeypatch, capsys):
    """Where its records are stale, or some of it was measured anew."""
    kept = [of_norm(), of_norm(shape=(16, 128))]
    of_torch = [replace(row, implementation="torch") for row in kept]
    found = [record_of(row, "trial") for row in (*kept, *of_torch)]
    file = tmp_path / "speeds.json"
    monkeypatch.setattr(records, "runs", lambda: found)
    speeds.main([str(file)])
    before = file.read_text()
    monkeypatch.setattr(records, "runs", lambda: found[::2])
    with pytest.raises(SystemExit, match=f"left as it is.* gives 1 of {GPU}: .* stale or gone"):
        speeds.main([str(file)])
    monkeypatch.setattr(records, "stale", lambda record: ["layernorm.kernels"])
    with pytest.raises(SystemExit, match=f"2 of {GPU}"):
        speeds.main([str(file)])
    assert file.read_text() == before
    speeds.main([str(file), "--drop"])
    assert json.loads(file.read_text())["entries"] == []
    assert "0 entries" in capsys.readouterr().out


def test_the_file_has_an_entry_a_line(tmp_path, monkeypatch):
    both = [of_norm(arm, mode=mode) for arm in ("triton", "torch")
            for mode in ("forward", "forward+backward")]  # fmt: skip
    found = [record_of(row, "trial") for row in both]
    monkeypatch.setattr(records, "runs", lambda: found)
    speeds.main([str(tmp_path / "speeds.json")])
    text = (tmp_path / "speeds.json").read_text()
    assert len(text.splitlines()) == 4
    document = json.loads(text)
    assert document["schema"] == 1
    assert [tuple(sorted(one)) for one in document["entries"]] == [
        ("device", "dtype", "gradient", "operation", "ratio_high", "shape")
    ] * 2
    assert json.loads(speeds.text([])) == {"schema": 1, "entries": []}
    assert speeds.text([]).count("\n") == 1
