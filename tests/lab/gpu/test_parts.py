"""Each part in a process of its own: what dies is started again, what hangs is ended."""

import fcntl
import sys
import time
from contextlib import suppress

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
    child, lock = tmp_path / "child", tmp_path / "lock"
    now = time.monotonic
    monkeypatch.setattr(parts.time, "monotonic", lambda: now() + 600 * child.exists())
    program = f"""
{HELD.format(lock=str(lock))}
if os.fork() == 0:
    Path({str(child)!r}).touch()
time.sleep(600)
"""
    code, lines = asked(program, seconds=300.0)
    assert code == 0
    assert lines[-1].startswith("out of time: what it was at is left")
    assert child.exists()
    assert nobody_holds(lock)


HELD = """
import fcntl, os, sys, time
lock = open({lock!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)  # let go when it has ended, and all that it started
"""
CHILD = (
    HELD
    + """
if os.fork() == 0:
    time.sleep(600)
sys.exit(3)
"""
)


def nobody_holds(path, patience=60.0):
    """Whether all processes that lock this file end, long before they would by themselves."""
    with path.open() as file:
        for _ in range(round(patience / 0.1)):
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.1)
    return False


def test_what_a_process_that_is_gone_has_started_ends_as_well(asked, tmp_path):
    """It holds the pipe, and would be waited for."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert asked(CHILD.format(lock=str(one)))[0] == 3
    command = python(CHILD.format(lock=str(two)))
    (ended,) = parts.side_by_side({"one": command}, 1, time.monotonic() + 300)
    assert ended.code == 3
    assert nobody_holds(one)
    assert nobody_holds(two)


def test_now_and_then_it_is_looked_at(asked, monkeypatch, tmp_path):
    """The program ends when it has been looked at twice."""
    monkeypatch.setattr(parts, "EVERY", 0.2)
    looks = []

    def look():
        looks.append(1)
        (tmp_path / f"look{len(looks)}").touch()

    program = WAIT.format(path=str(tmp_path / "look2"))
    assert asked(program, seconds=300.0, look=look)[0] == 0
    assert len(looks) >= 2


WAIT = """
import time
from pathlib import Path
while not Path({path!r}).exists():
    time.sleep(0.05)
"""


def python(program):
    return [sys.executable, "-c", program]


def test_commands_side_by_side_are_told_as_they_end(monkeypatch, tmp_path):
    """The second ends first, as both run at once; the last one's time is over."""
    go, on = tmp_path / "go", tmp_path / "on"
    late = []
    now = time.monotonic
    monkeypatch.setattr(parts.time, "monotonic", lambda: now() + sum(late))
    commands = {
        "slow": python(WAIT.format(path=str(go)) + "print('waited')"),
        "wrong": python("import sys; print('no'); sys.exit(3)"),
        "for ever": python(
            f"import time; print('on', flush=True); open({str(on)!r}, 'w'); time.sleep(600)"
        ),
    }
    found = parts.side_by_side(commands, 3, time.monotonic() + 3000, longest=300.0)
    told = ((e.name, e.code, e.printed) for e in found)
    assert next(told) == ("wrong", 3, "no\n")
    go.touch()
    assert next(told) == ("slow", 0, "waited\n")
    while not on.exists():
        time.sleep(0.05)
    late.append(600.0)
    assert list(told) == [("for ever", None, "on\n")]


def test_no_more_commands_at_once_than_asked_for_and_none_without_time(monkeypatch, tmp_path):
    """Time is up when the first has written its file."""
    say = "import sys, time; from pathlib import Path; Path(sys.argv[1]).touch(); time.sleep(600)"
    commands = {n: [*python(say), str(tmp_path / n)] for n in "ab"}
    assert list(parts.side_by_side(commands, 2, time.monotonic())) == []
    now = time.monotonic
    monkeypatch.setattr(parts.time, "monotonic", lambda: now() + 600 * (tmp_path / "a").exists())
    found = list(parts.side_by_side(commands, 1, time.monotonic() + 300))
    assert [(e.name, e.code) for e in found] == [("a", None)]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_commands_end_with_whoever_asked_for_them(tmp_path):
    """Also where it is told to stop, which is an exception here."""
    lock, held = tmp_path / "lock", tmp_path / "held"
    sleep = HELD.format(lock=str(lock)) + f"open({str(held)!r}, 'w'); time.sleep(600)"
    commands = {"soon": python(WAIT.format(path=str(held))), "late": python(sleep)}
    running = parts.side_by_side(commands, 2, time.monotonic() + 300)
    assert next(running).name == "soon"
    running.close()
    assert nobody_holds(lock)
