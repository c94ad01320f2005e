"""The tests that need a GPU, a process for each file: `python -m pytest -m gpu`, as far as there is
time.

A kernel is compiled in a second on one core and tested in a moment, so files are tested side by
side, each by several processes where pytest-xdist is there. The norms' kernels come before them,
alone, and then, alone as well, the programs that wait for each other, which might wait forever.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from layernorm.lab.gpu import parts
from layernorm.lab.records.files import write

ROOT = Path(__file__).parents[3]
FILES = (
    "tests/kernels/test_kernels.py",
    "tests/recurrent/gpu/test_gpu_persistent.py",
    "tests/recurrent/gpu/test_gpu_operators.py",
    "tests/recurrent/gpu/test_gpu_graphs.py",
    "tests/kernels/test_operators.py",
    "tests/kernels/test_graphs.py",
    "tests/recurrent/gpu/test_gpu_steps.py",
    "tests/recurrent/test_layers.py",
    "tests/library/test_modules.py",
    "tests/lab/benchmarks/measure/test_timing.py",
    "tests/lab/gpu/test_graphs_on_a_gpu.py",
)
ALONE = FILES[:2]
LONGEST = 120.0  # seconds that one file may take
PROCESSES = 3  # of one file
Command = Callable[[str], Sequence[str]]


def command(file: str, spread: bool = find_spec("xdist") is not None) -> list[str]:
    """The command for a file of tests, by several processes if they are to be spread."""
    # pytest-benchmark, where it is there, warns of the processes, and warnings are errors
    without = ["-p", "no:cacheprovider", "-p", "no:benchmark"]
    count = max(PROCESSES, (os.cpu_count() or 1) // 2) if file == FILES[0] else PROCESSES
    many = ["-n", str(count)] if spread else []
    return [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *without, *many, file]


def carry_out(
    runs: Path, until: float, note: Callable[[str], None], command: Command = command
) -> bool:
    """Test the files that did not pass before, with this code; returns whether all have passed.

    What came of it stands in `gpu_tests.json` under `runs`, and what was printed beside it.
    """
    kept, code = runs / "gpu_tests.json", _code()
    found = json.loads(kept.read_text()) if kept.exists() else {}
    found = found if found.get("code") == code else {"code": code}
    files = [file for file in FILES if (ROOT / file).exists()]

    left = [file for file in files if not found.get(file, "").startswith("passed")]
    left.sort(key=lambda file: file in found)  # what was not tried comes first
    many = max(1, (os.cpu_count() or 1) // PROCESSES)
    first = [[file] for file in left if file in ALONE and file not in found]
    again = [[file] for file in left if file in ALONE and file in found]
    for some in (*first, [file for file in left if file not in ALONE], *again):
        commands = {file: command(file) for file in some}
        for done in parts.side_by_side(commands, many, until, LONGEST, ROOT):
            found[done.name] = said = _said(done)
            note(f"{done.name}: {said}")
            write(kept, json.dumps(found, indent=1) + "\n")
            if not said.startswith("passed"):
                write(runs / f"{Path(done.name).stem}.log", done.printed)
    return all(found.get(file, "").startswith("passed") for file in files)


def _said(done: parts.Ended) -> str:
    """The result of a file's tests, in a line."""
    if done.code is None:
        return f"stopped after {done.seconds:.0f} s"
    last = (done.printed.strip().splitlines() or ["nothing printed"])[-1].strip("= ")
    how = {0: "passed", 5: "passed, nothing to test"}.get(done.code, "failed")
    return f"{how}: {last}"


def _code() -> str:
    """A hash of the package's and the tests' code."""
    files = sorted((*ROOT.glob("layernorm/**/*.py"), *ROOT.glob("tests/**/*.py")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
