"""Parts of a long task, each in a process of its own: if one dies, the others go on. Each has
a group of its own, too, so that what it started ends with it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

USELESS = 75  # the exit code of a process to which the GPU has become useless
GRACE = 60.0  # seconds after its time in which a part may end what it has begun
STARTS = 12  # of one part, at most
EVERY = 20.0  # seconds between two looks at what there is
PROGRAM = (sys.executable, "-m", "layernorm.lab.gpu")


def carry_out(
    arguments: Sequence[str], until: float, note: Callable[[str], None], look: Callable[[], None]
) -> int:
    """Run the program with these arguments and `--minutes`, and again while its process dies, or
    says that the GPU has become useless to it; returns the last exit code.

    Args:
        until: by `time.monotonic()`; `GRACE` later a process is ended.
        note: called with each line that it prints.
        look: called now and then.
    """
    code = 0
    for start in range(STARTS):
        left = until - time.monotonic()
        if left <= 0:
            break
        began = [*PROGRAM, *arguments, "--minutes", f"{left / 60:.4f}"]
        code = _process(began, until + GRACE, note, look)
        if code != USELESS and code >= 0:
            break
        why = "found the GPU useless" if code == USELESS else f"died of signal {-code}"
        again = "another one goes on" if start + 1 < STARTS else "it is left at that"
        note(f"the process {why}: {again}")
    return code


def _process(
    command: Sequence[str], end: float, note: Callable[[str], None], look: Callable[[], None]
) -> int:
    lines: queue.Queue[str | None] = queue.Queue()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, start_new_session=True, errors="replace", **pipes)

    def read() -> None:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    looked = time.monotonic()
    try:
        while True:
            try:
                line = lines.get(timeout=0.5)
                if line is None:
                    return process.wait()
                note(line)
            except queue.Empty:
                if process.poll() is not None:  # what it started holds the pipe
                    return process.returncode
            if time.monotonic() > end:
                note("out of time: what it was at is left, and tried again by the next call")
                return _ended(process)
            if time.monotonic() - looked > EVERY:
                look()
                looked = time.monotonic()
    finally:
        _ended(process)
        process.stdout.close()


class Ended(NamedTuple):
    """A command that ran beside others: its exit code, None if its time of `seconds` was over, and
    all that it printed."""

    name: str
    code: int | None
    seconds: float
    printed: str


def side_by_side(
    commands: Mapping[str, Sequence[str]],
    at_once: int,
    until: float,
    longest: float = float("inf"),
    folder: str | Path | None = None,
) -> Iterator[Ended]:
    """Run commands in this folder, so many at once, and yield each as it ends.

    None is begun at `until` (by `time.monotonic()`), and all end then, each after `longest` seconds
    at most, or when the caller is told to stop.
    """
    waiting, running = list(commands.items()), {}
    with ExitStack() as files:
        try:
            while waiting or running:
                while waiting and len(running) < at_once and (left := until - time.monotonic()) > 0:
                    name, command = waiting.pop(0)
                    output = files.enter_context(tempfile.TemporaryFile())
                    process = subprocess.Popen(
                        command, cwd=folder, stdout=output, stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )  # fmt: skip
                    running[name] = process, output, time.monotonic(), min(left, longest)
                if not running:
                    return
                for name, (process, output, began, seconds) in list(running.items()):
                    code = process.poll()
                    if code is None and time.monotonic() < began + seconds:
                        continue
                    del running[name]
                    _ended(process)
                    output.seek(0)
                    yield Ended(name, code, seconds, output.read().decode(errors="replace"))
                time.sleep(0.05)
        finally:
            for process, *_ in running.values():
                _ended(process)


def _ended(process: subprocess.Popen) -> int:
    """End a process and those that it started, which may live on without it; returns its exit code,
    0 if it had to be ended."""
    code = process.poll() or 0
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return code
