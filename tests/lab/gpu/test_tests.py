"""The tests that need a GPU, in the time that there is: what passed is not tried again, what was
not tried comes before what failed."""

import json
import sys
import time

import pytest

from layernorm.lab.gpu import tests

GOOD, BAD, NONE = ('print("1 passed")', 'print("1 failed"); exit(1)', "exit(5)")


@pytest.fixture
def tried(monkeypatch, tmp_path):
    """carry_out with a program for each file; returns whether all passed, and what was noted."""
    monkeypatch.setattr(tests, "ROOT", tmp_path)
    monkeypatch.setattr(tests, "FILES", ("a.py", "b.py", "absent.py"))
    monkeypatch.setattr(tests, "_code", lambda: "this code")
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()

    def carry_out(seconds=60.0, **programs):
        noted = []
        passed = tests.carry_out(
            tmp_path, time.monotonic() + seconds, noted.append,
            lambda file: [sys.executable, "-c", programs[file[0]]],
        )  # fmt: skip
        return passed, noted

    return carry_out


def test_what_passed_is_kept_and_what_failed_is_tried_again(tried, tmp_path):
    assert tried(a=GOOD, b=BAD) == (False, ["a.py: passed: 1 passed", "b.py: failed: 1 failed"])
    assert (tmp_path / "b.log").read_text() == "1 failed\n"
    assert not (tmp_path / "a.log").exists()
    assert tried(a=BAD, b=NONE) == (True, ["b.py: passed, nothing to test: nothing printed"])
    assert tried(a=BAD, b=BAD) == (True, [])
    assert json.loads((tmp_path / "gpu_tests.json").read_text())["code"] == "this code"


def test_what_was_not_tried_comes_first(tried, monkeypatch):
    monkeypatch.setattr(tests, "FILES", ("a.py",))
    tried(a=BAD)
    monkeypatch.setattr(tests, "FILES", ("a.py", "b.py"))
    assert [line[:4] for line in tried(a=GOOD, b=GOOD)[1]] == ["b.py", "a.py"]


def test_kernels_and_programs_that_wait_come_first_each_alone(tried, monkeypatch, tmp_path):
    """Unless they failed before: then what was not tried comes first."""
    assert [file.rpartition("/")[2] for file in tests.ALONE] == [
        "test_kernels.py", "test_gpu_persistent.py",
    ]  # fmt: skip
    monkeypatch.setattr(tests, "ALONE", ("a.py", "b.py"))
    monkeypatch.setattr(tests, "FILES", ("a.py", "b.py", "c.py"))
    (tmp_path / "c.py").touch()
    slow = f"import time; time.sleep(0.5); {GOOD}"
    programs = {"a": f"import time; time.sleep(0.5); {BAD}", "b": slow, "c": GOOD}
    assert [line[:4] for line in tried(**programs)[1]] == ["a.py", "b.py", "c.py"]
    (tmp_path / "gpu_tests.json").write_text('{"code": "this code", "a.py": "failed: 1 failed"}')
    assert [line[:4] for line in tried(a=GOOD, b=slow, c=GOOD)[1]] == ["b.py", "c.py", "a.py"]


def test_other_code_is_tested_anew(tried, monkeypatch):
    tried(a=GOOD, b=GOOD)
    monkeypatch.setattr(tests, "_code", lambda: "other code")
    assert len(tried(a=GOOD, b=GOOD)[1]) == 2


def test_without_time_nothing_begins_and_what_takes_long_is_stopped(tried, monkeypatch):
    assert tried(seconds=0.0, a=GOOD, b=GOOD) == (False, [])
    monkeypatch.setattr(tests, "LONGEST", 0.5)
    slow = "import time; time.sleep(600)"
    assert tried(a=slow, b=slow)[1] == ["a.py: stopped after 0 s", "b.py: stopped after 0 s"]
