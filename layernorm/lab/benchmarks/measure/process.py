"""Measure in new processes: times, of several and with another allocator's setting, or memory.

On a CPU, torch allocates every tensor anew, and each 4 kB cost a page fault. With
`THP_MEM_ALLOC_ENABLE=1` torch asks for pages of 2 MB instead (Linux). It reads that variable once,
when it starts.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch

from layernorm.lab.benchmarks.measure.case import MEASURED, Case, Row, measure, times

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


def measure_apart(case: Case, variables: Mapping[str, str]) -> list[Row]:
    """As `measure`, in `case.processes` new ones with these variables in their environment.

    The first judges; the others time what it found right. A ratio and its interval are those of
    the processes, each of which counts once.

    Raises:
        ChildProcessError: a process failed; what it wrote to stderr stands above.
    """
    rows = [row_from(document) for document in ask(case, "measure", variables)]
    right = [row for row in rows if row.status == MEASURED]
    if case.processes == 1 or not right:
        return rows
    timed = replace(case, implementations=tuple(row.implementation for row in right))
    others = [ask(timed, "timings", variables)[0] for _ in range(case.processes - 1)]
    samples = {
        row.implementation: [row.samples, *(found[row.implementation] for found in others)]
        for row in right
    }
    return [
        replace(row, **times(samples[row.implementation], samples.get(row.baseline)))
        if row.implementation in samples
        else row
        for row in rows
    ]


def ask(case: Case, question: str, variables: Mapping[str, str], *arguments: Any) -> list[Any]:
    """Call a case's method in a new process and read its answers as JSON; "measure": its rows.

    Raises:
        ChildProcessError: as `measure_apart`.
    """
    environment = {name: value for name, value in os.environ.items() if name != HUGE_PAGES}
    environment |= {"OMP_NUM_THREADS": str(case.threads), **variables}
    kind = type(case)
    asked = [kind.__module__, kind.__name__, asdict(case), question, arguments]
    program = f"import {__name__} as process; process.main()"
    command = [sys.executable, "-c", program, json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            answers = list(map(json.loads, process.stdout))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ChildProcessError(
            f"the process that measured {case} ended with status {process.returncode}"
        )
    return answers


def row_from(document: dict[str, Any]) -> Row:
    """A row from its JSON form, `dataclasses.asdict`."""
    lists = {name: tuple(document[name]) for name in ("shape", "samples", "ratios")}
    return Row(**document | lists)


def main() -> None:
    """Answer what `ask` asks, a line each."""
    module, name, fields, question, arguments = json.loads(sys.argv[1])
    lists = {n: tuple(value) for n, value in fields.items() if isinstance(value, list)}
    case = getattr(importlib.import_module(module), name)(**fields | lists)
    torch.set_num_threads(case.threads)
    measuring = question == "measure"
    answers = map(asdict, measure(case)) if measuring else getattr(case, question)(*arguments)
    for answer in answers:
        print(json.dumps(answer), flush=True)
