"""What must be measured in a process of its own: another allocation of memory, or its amount.

On a CPU, torch allocates every tensor anew, and the system hands memory out page by page: a page
fault for each 4 kB. With `THP_MEM_ALLOC_ENABLE=1` torch asks for pages of 2 MB instead (Linux),
which spares whatever allocates most of them. torch reads that variable once, when it starts.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks import memory, recurrent
from layernorm.lab.benchmarks.recurrent import BASELINE, OURS, Shape, one_of
from layernorm.lab.benchmarks.report import MEASURED, Row, to_records
from layernorm.lab.benchmarks.timing import Call

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
PAIR = (OURS, BASELINE)
STEPS = 3  # training steps over which a process's memory is counted


@dataclass(frozen=True)
class Plan:
    """What `layernorm bench recurrent` measures; see `recurrent.measure`."""

    kinds: tuple[str, ...] = recurrent.KINDS
    modes: tuple[str, ...] = recurrent.MODES
    shapes: tuple[Shape, ...] = recurrent.SHAPES
    subjects: tuple[str, ...] | None = None
    threads: int = 1
    rounds: int = 11
    seed: int = 0


def plan(
    kind: str = "both",
    mode: str = "both",
    shapes: str | None = None,
    subjects: str | None = None,
    threads: int | None = None,
    rounds: int = 11,
) -> Plan:
    """The plan that these words describe; None: all shapes, all subjects, torch's threads.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    one_of("kind", kind, [*recurrent.KINDS, "both"])
    one_of("mode", mode, [*recurrent.MODES, "both"])
    names = None if subjects is None else tuple(name.strip() for name in subjects.split(","))
    for name in names or ():
        one_of("subjects", name, list(recurrent.SUBJECTS["lstm"]))
    if threads is not None and not 1 <= threads <= (os.cpu_count() or 1):
        raise ValueError(f"threads: expected 1 to {os.cpu_count()}, got {threads}")
    if rounds < 6:
        raise ValueError(f"rounds: expected at least 6, for a 95% interval; got {rounds}")
    return Plan(
        recurrent.KINDS if kind == "both" else (kind,),
        recurrent.MODES if mode == "both" else (mode,),
        recurrent.SHAPES if shapes is None else tuple(map(_shape, shapes.split(";"))),
        names,
        threads or torch.get_num_threads(),
        rounds,
    )


def settings(huge_pages: str) -> tuple[bool, ...]:
    """Without and with huge pages, as the word says: off, on, both."""
    one_of("huge-pages", huge_pages, ["off", "on", "both"])
    return {"off": (False,), "on": (True,), "both": (False, True)}[huge_pages]


def check_outputs(json_path: Path | None, profile: str | None) -> None:
    """Refuse before the long measurement what could not be written after it.

    Raises:
        ValueError: the profile is no name, or the path's folder does not exist.
    """
    if profile is not None:
        arm = {"arm": OURS, "method": "layer", "seed": 0}
        records.key({"experiment": "bench_recurrent", "profile": profile, **arm})
    if json_path is not None and not json_path.parent.is_dir():
        raise ValueError(f"json: the folder of {json_path} does not exist; create it first")


def run(plan: Plan, settings: Iterable[bool], with_memory: bool) -> Iterator[Row]:
    """All rows of the plan, with and without huge pages. If both are wanted, the second time is for
    ours and torch's alone; memory is that of ours and torch's in training without huge pages.

    Raises:
        ChildProcessError: a measuring process failed.
    """
    for again, huge_pages in enumerate(settings):
        chosen = replace(plan, subjects=PAIR) if again else plan
        memories = _memories(chosen) if with_memory and not huge_pages else {}
        for row in rows(chosen, huge_pages):
            found = memories.get((row.options["kind"], row.implementation, row.shape))
            if found and row.mode == "training" and row.status == MEASURED:
                row = replace(row, held_memory=found[0], resident_memory=found[1])
            yield row


def _memories(plan: Plan) -> dict[tuple[str, str, Shape], tuple[int, int | None]]:
    """What training takes for ours and torch's, by kind, implementation and shape. Asked before
    anything is timed: beside a measurement nothing else may run."""
    return {
        (kind, subject, shape): memory_of(kind, subject, shape, plan.threads)
        for kind in plan.kinds
        for shape in plan.shapes
        for subject in PAIR
        if "training" in plan.modes and subject in (plan.subjects or PAIR)
    }


def save(rows: Iterable[Row], profile: str) -> Path:
    """Records of what was measured, without single samples, in the folder of own runs; returns the
    folder that `layernorm records add` publishes.

    Raises:
        ValueError: nothing was measured.
    """
    kept = [replace(row, samples=()) for row in rows if row.status == MEASURED]
    if not kept:
        raise ValueError("profile: nothing was measured, so there is nothing to record")
    paths = [records.save(record) for record in to_records(kept, profile, [recurrent.measure])]
    return paths[0].parent


def rows(plan: Plan, huge_pages: bool) -> Iterator[Row]:
    """The plan's rows, one after the other, measured in a new process.

    Their options say `threads` and `huge_pages`, "on" or "off".

    Raises:
        ChildProcessError: that process failed; what it wrote to stderr stands above.
    """
    for document in _ask("rows", {**asdict(plan), "huge_pages": huge_pages}, huge_pages):
        yield _row(document)


def memory_of(
    kind: str, subject: str, shape: Sequence[int], threads: int
) -> tuple[int, int | None]:
    """What training takes, in bytes, seen from a new process that does nothing else.

    What the graph holds for the backward pass (`memory.held`), and by how much the process grows
    at most in three training steps; None where the system does not tell (other than Linux). The
    second counts also what an implementation keeps outside of torch's tensors, and what it needs
    for a moment.

    Raises:
        ChildProcessError: that process failed.
    """
    question = {"kind": kind, "subject": subject, "shape": tuple(shape), "threads": threads}
    (answer,) = _ask("memory", question, False)
    return answer["held"], answer["resident"]


def _shape(text: str) -> Shape:
    numbers = text.strip().split(",")
    if len(numbers) != 4 or not all(n.strip().isdigit() and int(n) > 0 for n in numbers):
        raise ValueError(
            f"shapes: expected four positive integers T,B,I,H, several with semicolons, such as "
            f"'50,32,128,128;100,8,400,400'; got {text!r}"
        )
    return tuple(map(int, numbers))


def _row(document: dict[str, Any]) -> Row:
    """A row from its JSON form, `dataclasses.asdict`."""
    lists = {name: tuple(document[name]) for name in ("shape", "samples")}
    return Row(**document | lists)


def _ask(question: str, details: dict[str, Any], huge_pages: bool) -> Iterator[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != HUGE_PAGES}
    environment |= {HUGE_PAGES: "1"} if huge_pages else {}
    environment |= {"OMP_NUM_THREADS": str(details["threads"])}
    command = [sys.executable, "-m", __name__, question, json.dumps(details)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ChildProcessError(f"the process that measured {question} ended with an error")


def _rows(
    kinds: Iterable[str],
    shapes: Iterable[Shape],
    modes: Iterable[str],
    subjects: Iterable[str] | None,
    rounds: int,
    seed: int,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    options["huge_pages"] = "on" if options["huge_pages"] else "off"
    for kind in kinds:
        for mode in modes:
            for shape in shapes:
                measured = recurrent.measure(
                    kind, tuple(shape), mode, subjects, rounds=rounds, seed=seed, options=options
                )
                yield from map(asdict, measured)


def _memory(kind: str, subject: str, shape: Shape, **_: Any) -> Iterator[dict[str, Any]]:
    chosen = recurrent.SUBJECTS[kind][subject]
    small = recurrent._Run(chosen, (2, 1, *shape[2:]), "training", 0)
    run = recurrent._Run(chosen, tuple(shape), "training", 0)
    small.call()  # what is set up once
    del small
    gc.collect()
    resident = _growth(run.call)
    yield {
        "held": memory.held(run.forward, [run.x, *run.module.parameters()]),
        "resident": resident,
    }


def _growth(call: Call) -> int | None:
    """By how much the process grows at most while it calls some times; None if not on Linux."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status("VmRSS")
    except (OSError, AttributeError):
        return None
    for _ in range(STEPS):
        call()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    """Bytes of an entry in the system's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    asked, given = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(given["threads"])
    for answer in {"rows": _rows, "memory": _memory}[asked](**given):
        print(json.dumps(answer), flush=True)
