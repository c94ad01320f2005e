"""Files that are not what they say: refused with their name and what to do, or put aside."""

import hashlib
import io
import json
import os
import re
import shutil

import pandas as pd
import pytest
import torch
from lab.experiments.toy_experiment import stopped
from typed import layernorm

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, get
from layernorm.lab.experiments.run import train
from layernorm.lab.records import RecordError
from layernorm.lab.records.record import digest

CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}
RESULT = {"curves": {"loss": {"step": [0, 9], "value": [2.5, 0.5]}}, "final": {"error": 3.0}}


pytestmark = pytest.mark.usefixtures("toy")


def saved(**config):
    return records.save(records.Record({**CONFIG, **config}, RESULT))


def sealed(document) -> str:
    document = {name: value for name, value in document.items() if name != "sha256"}
    return json.dumps({**document, "sha256": digest(document)})


def nested(depth: int) -> str:
    return '{"schema":2,"config":' + "[" * depth + "]" * depth + "}"


def changed(*where, to):
    """The record with another value there, sealed again."""

    def change(text: str) -> str:
        document = json.loads(text)
        inner = document
        for name in where[:-1]:
            inner = inner[name]
        inner[where[-1]] = to
        return sealed(document)

    return change


CONTENTS = {
    "empty": lambda text: "",
    "deeply nested": lambda text: nested(100_000),
    "nested, sealed": changed("config", "options", to={"a": json.loads("[" * 600 + "]" * 600)}),
    "infinite": lambda text: text.replace("2.5", "1e999"),
    "5000 digits": lambda text: text.replace("2.5", "1" * 5000),
    "400 digits": changed("result", "final", "error", to=10**400),
    "a step of 400 digits": changed("result", "curves", "loss", "step", to=[0, 10**400]),
    "null": lambda text: "null",
    "null schema": changed("schema", to=None),
    "null hash": lambda text: text.replace(json.loads(text)["sha256"], "null"),
    **{f"null {part}": changed(part, to=None)
       for part in ("config", "result", "timing", "environment", "digest")},
    "null curves": changed("result", "curves", to=None),
    "null final": changed("result", "final", to=None),
    "null curve": changed("result", "curves", "loss", to=None),
    "null step": changed("result", "curves", "loss", "step", to=None),
    "null value": changed("result", "curves", "loss", "value", to=[None, 1.0]),
    "null metric": changed("result", "final", "error", to=None),
    "null time": changed("timing", to={"seconds_per_update": None}),
    "null seed": changed("config", "seed", to=None),
    "text for a list": changed("result", "curves", "loss", "value", to="ab"),
    "another run": changed("config", "seed", to=1),
    "another experiment": changed("config", "experiment", to="mnist"),
    "a digest that is a list": changed("digest", to=["a", "0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENTS)
def test_a_run_with_bad_content_is_refused_by_name_with_a_remedy(name):
    path = saved()
    path.write_text(CONTENTS[name](path.read_text()))
    for read in (lambda: records.read(path), lambda: records.load("digits")):
        with pytest.raises(RecordError) as error:
            read()
        assert str(path) in str(error.value)
        assert "delete it and run again" in str(error.value)
    assert "cannot be read" in records.staleness_banner("digits")


PUBLISHED = {
    **{f"null {part}": changed(part, to=None) for part in ("experiment", "shared", "runs")},
    "null run": changed("runs", to=[None]),
    **{f"null {part} of a run": changed("runs", 0, part, to=None)
       for part in ("config", "result", "timing", "environment", "digest")},
    "no such environment": changed("runs", 0, "environment", to="gone"),
    "confirmed, but null": changed("confirmed", to={"layer": None}),
    "confirmed by a number": changed("confirmed", to={"layer": {"of": 3}}),
    "deeply nested": CONTENTS["deeply nested"],
    "infinite": CONTENTS["infinite"],
    "400 digits": changed("runs", 0, "result", "final", "value", to=[10**400]),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_sweep_with_bad_content_is_refused(name):
    path = saved()
    (file,) = records.publish([path])
    path.unlink()
    assert records.runs("digits")
    file.write_text(PUBLISHED[name](file.read_text()))
    with pytest.raises(RecordError, match=r"digits-book\.json.*publish the sweep again"):
        records.load("digits")
    assert "cannot be read" in records.staleness_banner("digits")


def test_a_run_under_another_runs_name_is_not_believed():
    """As it was found: mnist printed convnet's numbers."""
    other, path = saved(experiment="convnet"), saved()
    shutil.copy(other, path)
    said = f"{path} holds the run of another name, convnet book layer seed 0"
    with pytest.raises(RecordError, match=re.escape(said)):
        records.load("digits")
    moved = path.with_name(other.name)
    path.rename(moved)
    said = f"{moved} holds the run of {other}: move it there, or delete it"
    with pytest.raises(RecordError, match=re.escape(said)):
        records.load("digits")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_opened(make):
    path = records.path(CONFIG)
    path.parent.mkdir(parents=True)
    make(path)
    with pytest.raises(RecordError, match="is no file"):
        records.load("digits")


@pytest.mark.parametrize("source", ["", "/", "..", "\0", pd.DataFrame({"a": [1]})])
def test_the_banner_never_raises(source):
    assert isinstance(records.staleness_banner(source), str)


def test_code_that_cannot_be_read_is_told_by_the_banner(monkeypatch):
    saved()
    monkeypatch.setattr("layernorm.lab.records.table.stale", lambda record: 1 / 0)
    assert records.staleness_banner("digits") == "Records cannot be read: division by zero."


@pytest.mark.parametrize("content", ["root:x:0:0:root:/root:/bin/bash\n", "{}", '{"schema":2}'])
def test_a_file_of_somebody_else_is_not_to_be_deleted(tmp_path, content):
    file = tmp_path / "passwd"
    file.write_text(content)
    said = layernorm("records", "add", str(file))
    assert said.exit_code == 1
    assert str(file) in said.stderr
    assert "a run's file is called <key>.json" in said.stderr
    assert "delete" not in said.stderr


def test_an_empty_name_is_no_folder(monkeypatch):
    monkeypatch.chdir(saved().parent)
    said = layernorm("records", "add", "")
    assert (said.exit_code, said.stdout) == (1, "")
    assert "'' is no file and no folder: name run files or folders" in said.stderr
    assert records.published.published() == []


# -- checkpoints


def config(seed=0):
    return get("toy").config("plain", "layer", seed)


def interrupted(seed=0):
    """The checkpoint of a run that was stopped at its second reading."""
    stopped(20, config(seed))
    (file,) = [f for f in records.path(CONFIG).parents[2].rglob("*.checkpoint")
               if checkpoint.read(f)["run"] == f.stem]  # fmt: skip
    return file


def hashed(archive: bytes) -> bytes:
    return hashlib.sha256(archive).digest() + archive


def rewritten(change):
    """Changes what a checkpoint holds."""
    return lambda file: checkpoint.write(file, change(checkpoint.read(file)))


def state(**other):
    return rewritten(lambda there: {**there, **other})


def without(name):
    return rewritten(lambda there: {k: v for k, v in there.items() if k != name})


def saying(**done):
    return rewritten(lambda there: {**there, "done": {**there["done"], **done}})


def holding(value):
    def change(file):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        file.write_bytes(hashed(buffer.getvalue()))

    return change


CHECKPOINTS = {
    "no archive": lambda file: file.write_bytes(hashed(b"words")),
    "nothing": lambda file: file.write_bytes(hashed(b"")),
    "a list": holding([1, 2]),
    "nothing in it": holding({}),
    "null": holding(None),
    **{f"null {part}": state(**{part: None})
       for part in ("model", "optimizer", "generators", "done", "code")},
    **{f"no {part}": without(part) for part in ("model", "optimizer", "generators", "done")},
    "another network": state(model={"0.weight": torch.zeros(2, 2)}),
    "null step": saying(step=None),
    "no readings": saying(steps=[], rows=[]),
    "more than it has": saying(more=1),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_with_bad_content_is_put_aside(name, capsys):
    expected = train(config(), save=False).result
    file = interrupted()
    CHECKPOINTS[name](file)
    content = file.read_bytes()
    assert train(config()).result == expected
    assert "it is now" in capsys.readouterr().err
    assert file.with_suffix(".checkpoint.old").read_bytes() == content


def test_a_checkpoint_under_another_runs_name_is_put_aside(capsys):
    expected = train(config(1), save=False).result
    file = interrupted(0)
    other = records.path({**records.read(records.save(train(config(1)))).config})
    other.unlink()
    shutil.move(file, other.with_suffix(".checkpoint"))
    assert train(config(1)).result == expected
    assert "the checkpoint is of another run; it is now" in capsys.readouterr().err
