import hashlib
import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import apart
import numpy as np
import pytest
import torch

from layernorm.lab import records
from layernorm.lab.records import RecordError

pytestmark = pytest.mark.usefixtures("folders")
CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}
RESULT = {"curves": {"loss": {"step": [0, 10], "value": [2.5, 0.1]}}, "final": {"error": 3.0}}


def run(result=RESULT, **config):
    return records.Record({**CONFIG, **config}, result, {"seconds_per_update": 0.5})


def written(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_saved_record_is_read_back_as_it_was(folders):
    record = records.new(
        CONFIG, RESULT, {"total": 1, "seconds_per_update": 0.5}, ["layernorm.lab.claims"]
    )
    noted = replace(record, confirmed={"digests": ["claims 0123"], "difference": "same bits"})
    assert records.read(records.save(noted)) == noted
    path = records.save(record)
    assert path == folders / "runs" / "digits" / "book" / f"{record.key}.json"
    assert records.read(path) == record
    assert records.path(CONFIG) == path
    assert written(folders) == [str(path.relative_to(folders))]


def test_new_tells_where_the_run_took_place():
    environment = records.new(CONFIG, RESULT).environment
    assert environment["versions"]["torch"] == str(torch.__version__)
    assert environment["threads"] == torch.get_num_threads()
    assert environment["cpu"]
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True)
    if head.returncode == 0:
        assert environment["commit"].removesuffix("-dirty") == head.stdout.strip()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_diverged_run_is_a_result_in_strict_json(value):
    result = {
        "curves": {"loss": {"step": [0, 1], "value": [1.0, value]}},
        "final": {"loss": value},
        "diverged_at": 1,
    }
    path = records.save(run(result))

    def refuse(constant):
        raise AssertionError(f"bare {constant} in {path}")

    json.loads(path.read_text(), parse_constant=refuse)
    records.publish([path])
    path.unlink()
    for back in (run(result), records.runs()[0]):
        values = [back.result["curves"]["loss"]["value"][1], back.result["final"]["loss"]]
        np.testing.assert_array_equal(values, [value, value])
        assert back.result["diverged_at"] == 1


def test_what_runs_share_is_published_once():
    steps = [123456, 234567]
    result = {
        "curves": {"loss": {"step": steps, "value": [2.0, 1.0]}},
        "final": {"share_at_the_border": 0.5},
    }
    paths = [records.save(run(result, seed=seed)) for seed in range(3)]
    (file,) = records.publish(paths)
    text = file.read_text()
    assert text.count("share_at_the_border") == text.count("123456") == 1
    for path in paths:
        path.unlink()
    assert [back.result["final"] for back in records.runs()] == 3 * [result["final"]]
    assert [back.result["curves"]["loss"]["step"] for back in records.runs()] == 3 * [steps]


def test_arrays_and_tensors_become_plain_numbers():
    curve = {"step": np.arange(2), "value": torch.tensor([1.0, 2.0])}
    record = run(
        {"curves": {"loss": curve}, "final": {"error": np.float32(0.5)}},
        options={"sizes": (3, np.int64(4))},
    )
    assert record.result["curves"]["loss"] == {"step": [0, 1], "value": [1.0, 2.0]}
    assert type(record.result["final"]["error"]) is float
    assert record.config["options"] == {"sizes": [3, 4]}


def test_the_key_depends_on_the_configuration_alone():
    key = run().key
    assert records.key(CONFIG) == key == run({"final": {"error": 9.0}}).key
    assert key == records.key({"data": None, "options": {}, **dict(reversed(CONFIG.items()))})
    others = [{"seed": 1}, {"arm": "batch"}, {"profile": "standard"}, {"data": "ab"}]
    others.append({"options": {"rate": 0.1}})
    assert len({key, *(run(**other).key for other in others)}) == 1 + len(others)
    # Whole numbers are one number, however they are written; others are told apart.
    assert run(options={"n": 3}).key == run(options={"n": 3.0}).key
    assert run(options={"n": 3}).key != run(options={"n": 3.0000000000000004}).key
    assert run(options={"n": 1}).key != run(options={"n": True}).key


def test_the_key_is_the_same_in_every_version():
    """A changed key would run everything again and leave two runs of one configuration."""
    text = (
        '{"arm":"layer","data":null,"experiment":"digits","method":"layer",'
        '"options":{"rate":0.001,"width":64},"profile":"book","seed":0}'
    )
    key = records.key({**CONFIG, "options": {"width": 64.0, "rate": 0.001}})
    assert key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_record_of_a_run_with_every_kind_of_text(folders):
    options = {"名前": 'quote " \\ \n', "emoji": "🧪", "ünï": "\u2028", "surrogate": "\ud800"}
    record = run({"final": {"µ(σ)": 1.0}}, arm="Größe/2: ½", options=options)
    path = records.save(record)
    assert records.read(path) == record
    records.publish([path])
    path.unlink()
    assert records.runs() == [record]
    assert records.load("digits").metric.tolist() == ["µ(σ)"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experiment": "Digits"}, "config['experiment'] must be lower-case"),
        ({"profile": "../x"}, "config['profile'] must be lower-case"),
        ({"arm": ""}, "config['arm'] must be a name"),
        ({"seed": "0"}, "config['seed'] must be an integer; got '0'"),
        ({"seed": True}, "config['seed'] must be an integer"),
        ({"data": 3}, "config['data'] must be a hash or None; got 3"),
        ({"rate": 0.1}, "config has no entry 'rate': put further choices into 'options'"),
        ({"options": [1]}, "config['options'] must be a dict"),
        ({"options": {"rate": math.nan}}, "config['options']['rate'] must be finite; got nan"),
        ({"options": {"f": print}}, "config['options']['f'] must be a number, string"),
        ({"options": {"a": {3: 4}}}, "config['options']['a'] must have strings as keys; got 3"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(RecordError, match=re.escape(message)):
        run(**change)
    with pytest.raises(RecordError):
        records.key({**CONFIG, **change})


def test_a_configuration_must_be_complete():
    with pytest.raises(RecordError, match="config lacks 'seed'; it has"):
        records.key({name: value for name, value in CONFIG.items() if name != "seed"})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({}, "result must have 'curves' or 'final'"),
        ({"metrics": {}}, "result has no entry 'metrics'"),
        ({"curves": {"a": {"step": [0, 1], "value": [1.0]}}}, "as many steps as values, 1; got"),
        ({"curves": {"a": {"step": [1, 1], "value": [1.0, 2.0]}}}, "must be increasing counts"),
        ({"curves": {"a": {"step": [0.5], "value": [1.0]}}}, "must be increasing counts"),
        ({"curves": {"a": {"step": [-1], "value": [1.0]}}}, "must be increasing counts"),
        ({"curves": {"a": {"value": [1.0]}}}, "must have 'step' and 'value'; got ['value']"),
        ({"curves": {"a": {"step": [0], "value": ["1"]}}}, "['value'] must be a number; got '1'"),
        ({"curves": {"a": {"step": [0], "value": 1.0}}}, "['value'] must be a list of numbers"),
        ({"final": {"a": None}}, "result['final']['a'] must be a number; got None"),
        ({"final": {"a": True}}, "result['final']['a'] must be a number; got True"),
        ({"final": {"a": [1.0, 2.0]}}, "result['final']['a'] must be a number"),
        ({"final": {3: 1.0}}, "a metric's name must be a string; got 3"),
        ({"final": {"a": 1.0}, "diverged_at": 2.5}, "result['diverged_at'] must be an update"),
    ],
)
def test_bad_results_are_refused(result, message):
    with pytest.raises(RecordError, match=re.escape(message)):
        run(result)


def test_timing_must_be_finite():
    with pytest.raises(RecordError, match=r"timing\['total'\] must be finite; got inf"):
        records.new(CONFIG, RESULT, {"total": math.inf})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-40], "is truncated or no JSON"),
        (lambda b: b"", "is truncated or no JSON"),
        (lambda b: b"\xff\xfe" + b, "is truncated or no JSON"),
        (lambda b: b.replace(b"0.1", b"NaN"), "bare NaN"),
        (lambda b: b.replace(b"0.1", b"0.2"), "was changed after it was written"),
        (lambda b: b.replace(b'"seed":0', b'"seed":1'), "was changed after it was written"),
        (lambda b: b.replace(b'"schema":2', b'"schema":3'), "has schema 3, this version"),
        (lambda b: b"[]", "lacks 'schema'"),
        (lambda b: b"{}", "lacks 'schema'"),
    ],
)
@pytest.mark.parametrize("kind", ["own", "published"])
def test_a_damaged_file_is_refused_by_name(folders, kind, change, message):
    path = records.save(run())
    if kind == "published":
        (published,) = records.publish([path])
        path.unlink()
        path = published
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RecordError, match=message) as error:
        records.load("digits")
    assert path.name in str(error.value)
    assert "lacks" in message or "again" in str(error.value)
    assert "cannot be read" in records.staleness_banner("digits")


def test_a_sealed_file_that_is_no_run_is_refused(tmp_path):
    document = {"schema": 2, "config": CONFIG}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**document, "sha256": records.record.digest(document)}))
    with pytest.raises(RecordError, match=r"x\.json is not a record of a run"):
        records.read(path)
    with pytest.raises(RecordError, match="there is no record"):
        records.read(tmp_path / "missing.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(folders, monkeypatch):
    path = records.save(run())
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        records.save(run({"final": {"error": 4.0}}))
    assert path.read_bytes() == before
    assert written(folders / "runs") == [str(path.relative_to(folders / "runs"))]


KILL = """
import os, signal, sys
from layernorm.lab import records
from layernorm.lab.records import files

config = {"experiment": "none_such", "profile": "book", "arm": "a", "method": "layer", "seed": 0}
old, new = (
    records.Record(config, {"curves": {"loss": {"step": list(range(2000)), "value": [v] * 2000}}})
    for v in (1.0, 2.0)
)
write = files.write


def killed(line):
    left = line

    def trace(frame, event, argument):
        nonlocal left
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def traced(*arguments):
        sys.settrace(trace)
        write(*arguments)

    child = os.fork()
    if child == 0:
        files.write = traced
        records.save(new)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


line, seen = 1, set()
records.save(old)
while killed(line):
    [found] = records.runs("none_such")
    seen.add((old, new).index(found))
    records.save(old)
    line += 1
assert records.runs("none_such") == [new]
assert line > 8 and seen == {0, 1}, (line, seen)
"""


WRITE = """
import os
from layernorm.lab import records

config = {"experiment": "none_such", "profile": "book", "arm": "a", "method": "layer", "seed": 0}
both = [
    records.Record(config, {"curves": {"loss": {"step": list(range(2000)), "value": [v] * 2000}}})
    for v in (1.0, 2.0)
]
parent, children = os.getpid(), []
for record in both:
    children.append(os.fork())
    if children[-1] == 0:
        while not os.path.exists("enough") and os.getppid() == parent:
            records.save(record)
        os._exit(0)
seen = set()
reads = 0
while reads < 100 or len(seen) < 2:
    for found in records.runs('none_such'):
        assert found in both
        seen.add(both.index(found))
        reads += 1
open("enough", "w").close()
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
assert len(records.runs('none_such')) == 1
"""


def python(script: str, folder: Path) -> None:
    done = apart.python("-c", script, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_killed_process_leaves_no_half_file(tmp_path):
    """Killed at every line of Python while it replaces a record: the old one or the new one."""
    python(KILL, tmp_path)


def test_two_writers_of_one_record(tmp_path):
    """Whoever reads meanwhile sees the one or the other, whole, and both in time."""
    python(WRITE, tmp_path)
    assert len(written(tmp_path / "runs")) == 1
