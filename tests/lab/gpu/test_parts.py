"""Each part in a process of its own: what dies is started again, what hangs is ended."""

import sys
import time

import pytest

from layernorm.lab.gpu import parts


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """carry_out with a program that is given here; returns its exit code and what was noted."""
    file = tmp_path / "program.py"
    monkeypatch.setattr(parts, "PROGRAM", (sys.executable, str(file), str(tmp_path / "starts")))

    def ask(program, seconds=60.0, look=lambda: None):
        file.write_text(COUNT + program)
        lines = []
        code = parts.carry_out(["bench"], time.monotonic() + seconds, lines.append, look)
        return code, lines

    return ask


COUNT = """
import os, signal, sys, time
from pathlib import Path
file = Path(sys.argv[1])
start = int(file.read_text()) + 1 if file.exists() else 1
file.write_text(str(start))
print("start", start, *sys.argv[2:4], flush=True)
"""


def test_its_lines_are_noted_and_it_knows_how_long_it_has(asked):
    code, (line, minutes) = asked("print(float(sys.argv[4]) <= 1, file=sys.stderr)")
    assert (code, line, minutes) == (0, "start 1 bench --minutes", "True")


def test_a_process_that_dies_or_finds_the_gpu_useless_is_followed_by_another(asked):
    program = "os.kill(os.getpid(), signal.SIGSEGV) if start == 1 else sys.exit(75 * (start == 2))"
    code, lines = asked(program)
    assert code == 0
    assert lines[1::2] == [
        "the process died of signal 11: another one goes on",
        "the process found the GPU useless: another one goes on",
    ]
    assert len(lines) == 5


def test_not_for_ever(asked, monkeypatch):
    monkeypatch.setattr(parts, "STARTS", 2)
    code, lines = asked("sys.exit(75)")
    assert (code, len(lines)) == (75, 4)
    assert lines[-1].endswith("it is left at that")


def test_an_error_of_the_program_is_no_reason_to_repeat_it(asked):
    assert asked("sys.exit(1)")[0] == 1


def test_what_hangs_is_ended_with_what_it_started(asked, monkeypatch, tmp_path):
    """Time is up when the child has written its file: nothing is ended before there is a child."""
    child, late = tmp_path / "child", tmp_path / "late"
    now = time.monotonic
    monkeypatch.setattr(parts.time, "monotonic", lambda: now() + 600 * child.exists())
    program = f"""
if os.fork() == 0:
    Path({str(child)!r}).touch()
    time.sleep(3)
    Path({str(late)!r}).touch()
time.sleep(600)
"""
    code, lines = asked(program, seconds=300.0)
    assert code == 0
    assert lines[-1].startswith("out of time: what it was at is left")
    assert child.exists()
    time.sleep(4)
    assert not late.exists()


def test_now_and_then_it_is_looked_at(asked, monkeypatch):
    monkeypatch.setattr(parts, "EVERY", 0.2)
    looks = []
    asked("time.sleep(2)", look=lambda: looks.append(1))
    assert len(looks) >= 2
