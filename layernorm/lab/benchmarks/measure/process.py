"""Measure in a new process: times with another allocator's setting, or memory.

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
from dataclasses import asdict
from typing import Any

import torch

from layernorm.lab.benchmarks.measure.case import Case, Row, measure

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


def measure_apart(case: Case, variables: Mapping[str, str]) -> list[Row]:
    """As `measure`, in a new process with these variables in its environment.

    Raises:
        ChildProcessError: that process failed; what it wrote to stderr stands above.
    """
    return [row_from(document) for document in ask(case, "measure", variables)]


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
    lists = {name: tuple(document[name]) for name in ("shape", "samples")}
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
