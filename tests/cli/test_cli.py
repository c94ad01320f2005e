import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from apart import python
from typed import layernorm, refused

from layernorm.lab import claims, data, records
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.claims import Finding

CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}
FIELDS = {"said_by": "paper section 3", "kind": "property", "chapter": "03", "rule": "The rule."}


@pytest.fixture(autouse=True)
def folders(folders, monkeypatch):
    """Data are in a folder of the test's own, too."""
    monkeypatch.delenv("LAYERNORM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders / "cache"))
    return folders


@pytest.fixture
def three_claims(monkeypatch, tmp_path):
    claims.all()
    monkeypatch.setattr("layernorm.lab.claims.registry._registry", {})
    found = Finding("held", "It is 0.", numbers={"worst": 0.0, "odd": float("nan")})
    claims.declare(id="first", statement="One holds.", check=lambda: found, **FIELDS)
    fields = {**FIELDS, "kind": "proof"}
    proved = Finding("proved", "It is 0.")
    claims.declare(id="second", statement="Two holds.", check=lambda: proved, **fields)
    claims.declare(id="later/mnist", statement="Three.", **{**FIELDS, "chapter": "19"})
    monkeypatch.setattr("layernorm.lab.claims.verdicts.FILE", tmp_path / "verdicts.json")


def succeed(*arguments: str) -> str:
    result = layernorm(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_claims_are_listed_with_verdict_and_evidence(three_claims):
    out = succeed("claims", "--check")
    for piece in ("✓ held", "first", "One holds.", "It is 0.", "… not yet tested", "later/mnist"):
        assert piece in out
    assert "Rule" not in out
    assert "Rule: The rule." in succeed("claims", "first")


def test_claims_are_listed_as_they_were_decided_last(three_claims, monkeypatch):
    assert "No verdict is stored" in succeed("claims", "first")
    decided = succeed("claims", "--check", "--save")
    monkeypatch.setattr(claims, "decide", None)
    assert succeed("claims") == decided
    monkeypatch.setattr("layernorm.lab.claims.verdicts.Stored._current", lambda *_: False)
    monkeypatch.setattr("layernorm.lab.claims.verdicts._bytes", lambda *_: "other")
    outdated = "Decided before code or records changed; decide it again with --check."
    assert outdated in succeed("claims", "first")
    assert json.loads(succeed("claims", "first", "--json"))[0]["current"] is False
    assert layernorm("claims", "--save").exit_code == 2


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), ["first", "second", "later/mnist"]),
        (("--kind", "proof"), ["second"]),
        (("--chapter", "19"), ["later/mnist"]),
        (("--chapter", "03", "--kind", "property"), ["first"]),
        (("second",), ["second"]),
        (("--chapter", "22"), []),
    ],
)
def test_claims_are_chosen(three_claims, options, ids):
    rows = json.loads(succeed("claims", "--json", *options))
    assert [row["id"] for row in rows] == ids


def test_claims_as_json(three_claims):
    (row,) = json.loads(succeed("claims", "first", "--json", "--check"))
    assert row == {
        "id": "first",
        "statement": "One holds.",
        "said_by": ["paper section 3"],
        "kind": "property",
        "chapter": "03",
        "rule": "The rule.",
        "verdict": "held",
        "condition": None,
        "reason": None,
        "evidence": "It is 0.",
        "numbers": {"worst": 0.0, "odd": "nan"},
        "table": [],
        "current": True,
    }


def test_a_broken_check_is_named_and_the_others_are_shown(three_claims):
    claims.declare(id="broken", statement="No.", check=lambda: 1 / 0, **FIELDS)
    result = layernorm("claims", "--check")
    assert result.exit_code == 1
    assert "One holds." in result.stdout
    assert result.stderr == (
        "Error: the check of claim 'broken' raised ZeroDivisionError: division by zero\n"
    )
    assert "'broken'" in refused("claims", "broken", "--check")


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("typer", "cli"),
        ("sklearn.datasets", "data"),
        ("pooch", "data"),
        ("pandas", "experiments"),
        ("scipy.stats", "experiments"),
        ("tqdm", "experiments"),
        ("yaml", "experiments"),
        ("pydantic", "cli"),
        ("matplotlib.pyplot", "chapters"),
        ("sympy", "chapters"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(three_claims, module, extra):
    def check():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    claims.declare(id="needs", statement="No.", check=check, **FIELDS)
    said = refused("claims", "needs", "--check")
    assert said.endswith(
        f"No module named {module!r}; install it with: pip install 'layernorm[{extra}]'"
    )


def test_a_missing_module_of_no_extra_is_named_alone(three_claims, monkeypatch):
    missing = ModuleNotFoundError("No module named 'nowhere'", name="nowhere")
    monkeypatch.setattr(claims, "select", lambda *_: (_ for _ in ()).throw(missing))
    assert refused("claims") == "Error: No module named 'nowhere'"


def test_progress_is_shown_on_a_terminal_alone():
    command = [sys.executable, "-m", "layernorm", "claims", "--check", "--chapter", "17", "--json"]
    ours, theirs = os.openpty()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert b"deciding" in os.read(ours, 10_000)
    os.close(ours)
    assert done.returncode == 0
    assert isinstance(json.loads(done.stdout), list)
    piped = subprocess.run(command, capture_output=True)
    assert (piped.returncode, piped.stderr) == (0, b"")


def test_the_version_is_told():
    result = layernorm("--version")
    assert (result.exit_code, result.output) == (0, f"layernorm {metadata.version('layernorm')}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("claims", "frist"), "there is no claim 'frist'; did you mean first?"),
        (
            ("claims", "--kind", "law"),
            "kind must be one of proof, property, experiment, text; got 'law'",
        ),
        (("claims", "--chapter", "3"), "chapter must be one of 01, 02"),
        (("records", "add", "nowhere.json"), "there is no record nowhere.json"),
        (("data", "fetch", "cifar"), "expected one of digits, mnist, cifar10, got 'cifar'"),
        (("data", "verify", "mnist"), "fetch it with: layernorm data fetch mnist"),
        (("bench", "recurrent", "--kind", "ltsm"), "got 'ltsm'; did you mean 'lstm'?"),
        (("bench", "recurrent", "--shapes", "1,2,3"), "four positive integers T,B,I,H"),
        (("bench", "recurrent", "--processes", "5"), "expected 1, or at least 6"),
        (("bench", "recurrent", "--huge-pages", "yes"), "expected one of off, on, both"),
        (("bench", "recurrent", "--profile", "My"), "must be lower-case letters"),
        (("bench", "compile", "--subjects", "our"), "expected one of ours, ours packed"),
        (("bench", "recurrent", "--json", "nowhere/rows.json"), "folder of nowhere/rows.json does"),
    ],
)
def test_errors_are_one_line(three_claims, arguments, message):
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("claim",), "No such command 'claim'. Did you mean 'claims'?"),
        (("records", "lst"), "No such command 'lst'. Did you mean 'list'?"),
        (("claims", "--knid", "proof"), "--kind"),
        (("claims", "first", "--kind", "proof"), "one claim is named by its ID alone"),
        (("records", "add"), "Missing argument"),
        (("bench", "recurent"), "Did you mean 'recurrent'?"),
        (("bench", "recurrent", "--shape", "1,2,3,4"), "--shapes"),
    ],
)
def test_wrong_usage_suggests_what_was_meant(three_claims, arguments, message):
    result = layernorm(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("group", [(), ("records",), ("data",), ("bench",)])
def test_a_group_alone_explains_itself(group):
    result = layernorm(*group)
    assert "Commands:" in result.stdout + result.stderr
    assert layernorm(*group, "--help").exit_code == 0


def test_records_are_added_and_listed(folders):
    assert succeed("records", "list") == "experiment  profile  arms  seeds  runs  stale\n"
    for seed in (0, 1):
        config = {**CONFIG, "seed": seed}
        records.save(records.new(config, {"final": {"a": 1.0}}, {}, ["layernorm.methods"]))
    stale = {**CONFIG, "arm": "batch"}
    records.save(records.Record(stale, {"final": {"a": 1.0}}, digest="method 0"))
    path = str(folders / "published" / "digits-book.json")
    assert succeed("records", "add", str(folders / "runs")) == path + "\n"
    _, row = succeed("records", "list").splitlines()
    assert row.split() == ["digits", "book", "2", "2", "3", "1"]
    (folders / "published" / "digits-book.json").write_text("{")
    assert "digits-book.json is truncated" in refused("records", "list")


def test_replacing_published_records(folders):
    for seed in (0, 1):
        run = records.save(records.Record({**CONFIG, "seed": seed}, {"final": {"a": 1.0}}))
        succeed("records", "add", str(run), *(["--replace"] if seed else []))
        run.unlink()
    assert [run.config["seed"] for run in records.runs()] == [1]


def test_data_is_listed_and_verified():
    rows = [line.split()[0] for line in succeed("data", "list").splitlines()]
    assert rows[:4] == ["name", "digits", "mnist", "cifar10"]
    assert "digits: embedded has sha256 " in succeed("data", "verify", "digits")
    assert "digits: embedded has sha256 " in succeed("data", "fetch", "digits")


def test_all_data_are_verified_whatever_is_absent(folders, monkeypatch, tmp_path):
    """Sets that were not fetched are told; one of another content is an error, and the last ones
    are looked at all the same."""
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    lines = succeed("data", "verify").splitlines()
    assert [line.partition(":")[0] for line in lines] == list(data.DATASETS)
    assert sum("fetch it with" in line for line in lines) == 2
    last = lines[-1].partition(":")[0]
    (tmp_path / "mnist").mkdir()
    for file in data.DATASETS["mnist"].files:
        (tmp_path / "mnist" / file.name).write_text("another")
    result = layernorm("data", "verify")
    assert result.exit_code == 1
    assert "expected sha256" in result.stderr
    assert result.stdout.splitlines()[-1].startswith(last)


@pytest.fixture
def two_rows(monkeypatch):
    """The rows that `bench recurrent` would measure; a test may say that one of them is wrong."""
    common = ("torch", "training", (1, 2, 3, 4), "float32", "cpu", 0)
    options = {"kind": "gru", "rounds": 6, "threads": 1, "huge_pages": "off", "machine": "here"}
    times = {"error": 0.5, "seconds": 0.002, "ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1}
    rows = [
        Row("recurrent", "layer", name, *common, "measured", options=options, **times)
        for name in ("torch", "ours")
    ]
    apart = "layernorm.lab.benchmarks.recurrent.case.measure_apart"
    monkeypatch.setattr(apart, lambda *_: rows)
    return rows


ONE_CASE = ("--kind", "gru", "--mode", "training", "--shapes", "1,2,3,4", "--no-memory")
ONE_CASE += ("--huge-pages", "off", "--threads", "1", "--subjects", "torch,ours")


def test_rows_that_cannot_be_written_are_refused_before_anything_is_measured(two_rows, monkeypatch):
    def denied(dir):
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    monkeypatch.setattr("layernorm.lab.benchmarks.measure.run", None)
    said = refused("bench", "recurrent", *ONE_CASE, "--json", "rows.json")
    assert "json: . cannot be written to ([Errno 13] Permission denied: '.'); name another" in said
    assert "json: / is a folder; name a file" in refused("bench", "recurrent", "--json", "/")


def test_the_recurrent_benchmark_shows_writes_and_records(two_rows, folders):
    file = str(folders / "rows.json")
    out = succeed("bench", "recurrent", *ONE_CASE, "--json", file, "--profile", "mine")
    assert out.startswith("GRU, training, float32, threads: 1, huge pages off: ratio of times")
    assert "1,2,3,4         2.00       1.00 [0.90, 1.10]" in out.splitlines()
    assert "correctness: 2 of 2 measurements passed the gate" in out
    rows = json.loads(Path(file).read_text())["rows"]
    assert [row["implementation"] for row in rows] == ["torch", "ours"]
    (folder,) = {out.splitlines()[-1].removeprefix("records: ")}
    assert len(list(Path(folder).glob("*.json"))) == 2


@pytest.mark.parametrize("command", ["recurrent", "packed", "compile"])
@pytest.mark.parametrize(
    ("number", "message"), [("0", "at least 1, got 0"), ("9999", "at most .* cores, got 9999")]
)
def test_a_benchmark_refuses_too_few_and_too_many_threads(command, number, message, monkeypatch):
    monkeypatch.setattr("layernorm.lab.benchmarks.measure.run", None)
    assert re.search(f"threads must be {message}", refused("bench", command, "--threads", number))


def test_a_wrong_implementation_fails_the_recurrent_benchmark(two_rows):
    two_rows[1] = replace(two_rows[1], status="wrong: y is off by 0.1", seconds=None, ratio=None)
    result = layernorm("bench", "recurrent", *ONE_CASE)
    assert result.exit_code == 1
    assert "gru training 1x2x3x4 float32 ours: wrong: y is off by 0.1" in result.stdout
    assert "1 of 2 measurements passed the gate" in result.stdout


def test_the_module_is_the_command():
    done = python("-m", "layernorm", "data", "lst")
    assert done.returncode == 2
    assert "Usage: layernorm data" in done.stderr
