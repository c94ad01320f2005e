"""Locks between processes, so that two sweeps in one folder share its runs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from layernorm.lab.experiments import checkpoint
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.records.files import runs_folder

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None
    import msvcrt

EVERY = 0.2  # seconds between two looks at a lock that another process holds


def place(config: Config, root: str | Path | None = None) -> Path:
    """The lock of a run; its name needs no data."""
    return runs_folder(root) / config.experiment / config.profile / f"{config.key()}.lock"


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of that name; wait while another process holds it.

    The system releases the lock of a process that ends in any way. Where no file can be made or the
    file system has no locks, nothing is locked.
    """
    while (file := _opened(path)) is not None and not _taken(file, path):
        file.close()
        time.sleep(EVERY)
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                path.unlink()  # still locked; whoever has it open sees that it is gone
            file.close()


def busy(path: Path) -> bool:
    """Say whether a process holds the lock of that name."""
    if not path.exists() or (file := _opened(path)) is None:
        return False
    with file:
        return not _taken(file, path)


@contextlib.contextmanager
def alone(root: str | Path | None = None) -> Iterator[None]:
    """Begin when no run in the folder of own runs is at work; one process at a time."""
    folder, said = runs_folder(root), False
    place = folder / "timing.lock"
    with held(place):
        while any(busy(path) for path in folder.rglob("*.lock") if path != place):
            if not said:
                checkpoint.say("waiting for runs of other sweeps: arms are timed alone")
            said = True
            time.sleep(EVERY)
        yield


def _opened(path: Path) -> IO[str] | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError:
        return None


def _taken(file: IO[str], path: Path) -> bool:
    """Try to lock an open file. False as well if it was deleted: it is then no longer the lock."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
