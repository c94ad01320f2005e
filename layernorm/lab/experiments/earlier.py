"""Runs made by an earlier checkout of the project.

On another processor than its own a run does not repeat bit for bit, whatever the code. There both
the code as it is and an earlier one, of which the published runs are, make the same run: with the
same bits, the change between them was none of arithmetic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from layernorm.lab import records
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.records import Record

# Names that every checkout has. It answers with a line for each run: its key, and the file of its
# record or "" where the published run is not of this checkout's code.
PROGRAM = """
import json, sys
from dataclasses import replace

import layernorm
from layernorm.lab import records
from layernorm.lab.experiments import get, run
from layernorm.lab.records.published import published

told = json.load(sys.stdin)
if not layernorm.__file__.startswith(told["checkout"]):
    raise SystemExit(f"it has no package layernorm: {layernorm.__file__} was imported")
there = {}
for plain in told["runs"]:
    name, profile = plain["experiment"], plain["profile"]
    if (name, profile) not in there:
        found = published(name, profile)
        there[name, profile] = {records.key({**one.config, "data": None}): one for one in found}
    made = get(name).config(told["profile"], plain["arm"], plain["seed"])
    options = type(made.options)(**plain["options"], method=plain["method"])
    config = replace(made, profile=profile, options=options)
    old = there[name, profile].get(config.key())
    file = ""
    if old is not None and not records.stale(old):
        record = run.train(config, root=told["root"])
        file = str(records.path(record.config, told["root"]))
    print(json.dumps([config.key(), file]), flush=True)
"""


def runs(
    checkout: str | Path,
    configs: Iterable[Config],
    profile: str,
    root: Path,
    threads: int = 1,
    at_once: int = 1,
) -> dict[str, Record | None]:
    """The records of these runs, made by the code of a checkout in processes of its own, by key;
    None: the published run is not of that code.

    Args:
        checkout: a folder that holds the package `layernorm`, with its published records.
        profile: that the plan has; a configuration's may be one beside it.
        root: of the records.
        threads, at_once: of a process; how many run at the same time.

    Raises:
        ValueError: there is no such package.
        ChildProcessError: a process failed; what it wrote to stderr stands above.
    """
    checkout = Path(checkout).resolve()
    if not (checkout / "layernorm" / "__init__.py").is_file():
        raise ValueError(f"before: expected a checkout with the package layernorm, got {checkout}")
    plain = [config.plain() for config in configs]
    parts = [part for part in (plain[k::at_once] for k in range(at_once)) if part]
    told = {"checkout": str(checkout), "profile": profile, "root": str(root.resolve())}
    processes = [_begin(checkout, threads, {**told, "runs": part}) for part in parts]
    try:
        lines = [line for process in processes for line in process.communicate()[0].splitlines()]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise ChildProcessError(f"the code of {checkout} could not make its runs again")
    made = dict(map(json.loads, lines))
    return {key: records.read(file) if file else None for key, file in made.items()}


def _begin(checkout: Path, threads: int, told: Mapping[str, Any]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(checkout)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout, env=environment,
    )  # fmt: skip
    process.stdin.write(json.dumps(told))
    process.stdin.close()
    process.stdin = None
    return process
