"""What normalization costs a whole update: forward, loss, backward and a step of Adam.

from layernorm.lab.benchmarks import training
training.measure("mlp", (128, 784, 1000, 1000, 10))     # rows; batch and layer sizes
training.measure("lstm", (50, 32, 128, 128))            # T steps, B sequences, I inputs, H units
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from layernorm.lab import records
from layernorm.lab.benchmarks import gate, memory
from layernorm.lab.benchmarks.harness import times
from layernorm.lab.benchmarks.recurrent import one_of
from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE, Row, from_record, to_records
from layernorm.lab.benchmarks.timing import Timer, interleaved, timer_for
from layernorm.lab.benchmarks.training_models import (
    BASELINE,
    CASES,
    CLASSES,
    EPS,
    RATE,
    SUBJECTS,
    Shape,
    Subject,
    Update,
    make_update,
)

EXACT = 1e-9  # error allowed in float64, relative to each element or the root mean square
ROUNDED = 1e-2  # in float32, of a gradient's length: a ReLU's input may round to its other side
SHAPES: dict[str, tuple[Shape, ...]] = {
    "mlp": ((128, 784, 1000, 1000, 10), (4, 784, 1000, 1000, 10)),
    "digits": ((128, 64, 128, 128, 10), (4, 64, 128, 128, 10), (1, 64, 128, 128, 10)),
    "lstm": ((50, 32, 128, 128), (50, 4, 128, 128)),
}

Make = Callable[[torch.dtype], Update]


def judge(subject: Subject, make: Make) -> tuple[float, str]:
    """The worst error of one update as a fraction of what is allowed; what is wrong ("": nothing).

    The definition gives, in float64, the loss, the gradients g, and what Adam's first step makes of
    each weight: w - rate g / (|g| + eps). The implementation must agree in float64 to 1e-9, each
    element; and in float32, as it is timed, loss and gradients to 1% of their length (a ReLU whose
    input rounds to its other side moves them by more than rounding does).
    """
    update, timed = make(torch.float64), make(torch.float32)
    exact = {n: p.detach().clone().requires_grad_() for n, p in update.parameters.items()}
    x, y = update.cases()
    update.next = 0
    loss = F.cross_entropy(subject.define(update.model, exact, x), y)
    grads = torch.autograd.grad(loss, list(exact.values()))
    weights = [
        w.detach() - RATE * g / (g.abs() + EPS) for w, g in zip(exact.values(), grads, strict=True)
    ]
    found, rounded = [update()], [timed()]
    found += [p.grad for p in update.parameters.values()]
    rounded += [p.grad for p in timed.parameters.values()]
    names = ["loss", *(f"gradient of {n}" for n in exact)]
    errors = {
        f"{name} in float32": ((a - b).norm() / b.norm()).item() / ROUNDED
        for name, a, b in zip(names, rounded, [loss, *grads], strict=True)
    }
    names += [f"{n} after the step" for n in exact]
    found += update.parameters.values()
    for name, a, b in zip(names, found, [loss, *grads, *weights], strict=True):
        errors[name] = gate.relative_error(a, b) / EXACT
    worst = max(errors, key=lambda name: math.inf if math.isnan(errors[name]) else errors[name])
    error = errors[worst]
    return error, "" if error <= 1 else f"{worst} is off by {error:.2g} times what is allowed"


def measure(
    model: str,
    shape: Sequence[int],
    subjects: Iterable[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    rounds: int = 7,
    copies: int = 8,
    sample_seconds: float = 0.02,
    seed: int = 0,
    timer: Timer | None = None,
) -> list[Row]:
    """One row for each implementation; those that agree with their definition are timed in turns.

    Where the weights come to lie in memory changes an update by several percent, so every
    implementation is made anew `copies` times, and timed for `rounds` rounds each time. Ratios are
    to "none", the same model without normalization, within each round.

    Args:
        model: "mlp" or "digits", for shapes (batch, inputs, hidden units..., 10), or "lstm", for
            (T, B, I, H): steps, sequences, inputs, units.
        subjects: names in `SUBJECTS[model]`; None: all that this device and batch allow.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    device, shape = torch.device(device), tuple(shape)
    blanks = _blanks(model, shape, subjects, device, rounds, copies, seed)
    rows, makes = {row.implementation: row for row in blanks}, {}
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        return blanks
    for name, row in rows.items():
        subject = SUBJECTS[model][name]
        make = partial(make_update, subject, model, shape, device, seed)
        try:
            error, wrong = judge(subject, make)
        except Exception as failure:  # of any kind: a library may not support this here
            rows[name] = replace(row, status=f"failed: {type(failure).__name__}: {failure}")
            continue
        status = f"wrong: {wrong}" if wrong else MEASURED
        rows[name] = replace(row, status=status, error=error)
        if not wrong:
            makes[name] = make
    samples: dict[str, list[float]] = {name: [] for name in makes}
    for _ in range(copies if makes else 0):
        calls = {name: make(torch.float32) for name, make in makes.items()}
        clock = timer or timer_for(device)
        for name, taken in interleaved(clock, calls, rounds, sample_seconds).items():
            samples[name] += taken
    for name, taken in samples.items():
        calls[name].optimizer.zero_grad()
        peak = memory.peak(calls[name], device)
        rows[name] = replace(rows[name], **times(taken, samples.get(BASELINE)), peak_memory=peak)
    return list(rows.values())


def _blanks(
    model: str, shape: Shape, subjects: Iterable[str] | None, device: str | torch.device,
    rounds: int, copies: int, seed: int,
) -> list[Row]:  # fmt: skip
    """The rows that `measure` will fill, when the arguments are right."""
    one_of("model", model, SUBJECTS)
    right = len(shape) == 4 if model == "lstm" else len(shape) >= 3 and shape[-1] == CLASSES
    if not right or not all(isinstance(n, int) and n > 0 for n in shape):
        form = "T, B, I, H" if model == "lstm" else f"batch, inputs, hidden units..., {CLASSES}"
        raise ValueError(f"shape: expected positive integers {form} for {model}, got {shape}")
    batch, device = shape[1 if model == "lstm" else 0], torch.device(device)
    if batch > CASES:
        raise ValueError(f"shape: expected a batch of at most {CASES}, got {batch}")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected cpu or cuda, got {device}; others have no timer here")
    if rounds < 6:
        raise ValueError(f"rounds: expected at least 6, for a 95% interval; got {rounds}")
    if copies < 1:
        raise ValueError(f"copies: expected at least 1, got {copies}")
    known = SUBJECTS[model]
    if subjects is None:
        cuda = device.type == "cuda"
        subjects = [n for n, s in known.items() if s.least <= batch and (cuda or not s.cuda)]
    options = {"model": model, "rounds": rounds, "copies": copies}
    options["threads"] = torch.get_num_threads()
    rows = []
    for name in subjects:
        subject = known[one_of("subjects", name, known)]
        if batch < subject.least:
            raise ValueError(f"subjects: {name} takes at least 2 cases, shape has {batch}")
        rows.append(Row(
            "training", subject.method, name, BASELINE, "training", shape, "float32", str(device),
            seed, NO_DEVICE, options=options,
        ))  # fmt: skip
    return rows


@dataclass(frozen=True)
class Plan:
    """What `layernorm bench training` measures: these models at each of their shapes."""

    models: tuple[str, ...] = tuple(SUBJECTS)
    device: str = "cpu"
    rounds: int = 7
    copies: int = 8


def plan(models: str | None, device: str, quick: bool) -> Plan:
    """The plan that these words describe; models None: all; device "auto": a GPU if there is one.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    names = tuple(SUBJECTS) if models is None else tuple(n.strip() for n in models.split(","))
    for name in names:
        one_of("models", name, SUBJECTS)
    one_of("device", device, ["auto", "cpu", "cuda"])
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    rounds, copies = (6, 3) if quick else (7, 8)
    return Plan(names, device, rounds, copies)


def run(plan: Plan, profile: str | None = None) -> Iterator[list[Row]]:
    """The rows of each model and shape. With a profile they are saved as records, and where one's
    own records of all of them are there, of the same code, those are read instead."""
    many = {"device": plan.device, "rounds": plan.rounds, "copies": plan.copies}
    for model in plan.models:
        for shape in SHAPES[model]:
            blanks = _blanks(model, shape, None, seed=0, **many)
            rows = [] if profile is None else _saved(blanks, profile)
            if not rows:
                rows = measure(model, shape, **many)
                if profile is not None:
                    save(rows, profile)
            yield rows


def save(rows: Iterable[Row], profile: str) -> list[Path]:
    """Records of what was measured, without single samples, in the folder of own runs."""
    kept = [replace(row, samples=()) for row in rows if row.status == MEASURED]
    return [records.save(record) for record in _records(kept, profile)]


def _records(rows: list[Row], profile: str) -> list[records.Record]:
    return to_records(rows, profile, [measure])


def _saved(blanks: Iterable[Row], profile: str) -> list[Row]:
    made = _records([replace(row, error=0.0) for row in blanks], profile)
    paths = [records.path(record.config) for record in made]
    found = [records.read(path) for path in paths if path.exists()]
    there = len(found) == len(paths) and not any(map(records.stale, found))
    return [from_record(record) for record in found] if there else []


def recorded(profile: str = "cpu") -> list[Row]:
    """The rows of the records there are, in the order in which they are measured; their options
    have the `machine`, too."""

    def place(row: Row) -> tuple:
        model = row.options["model"]
        order = list(SUBJECTS).index(model), list(SUBJECTS[model]).index(row.implementation)
        return row.options["machine"], order[0], [-n for n in row.shape], order[1]

    rows = []
    for record in records.runs("bench_training", profile):
        row, machine = from_record(record), record.config["options"]["machine"]
        rows.append(replace(row, options={**row.options, "machine": machine}))
    return sorted(rows, key=place)


def table(rows: Iterable[Row]) -> list[list[str]]:
    """Implementations down, head first; ratios are to the same model without normalization."""
    lines = [["model", "shape", "implementation", "ms/update", "ratio [95% interval]", "peak MB"]]
    for row in rows:
        cells = ["", row.status, ""]
        if row.seconds is not None:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            if row.ratio is not None and row.implementation != BASELINE:
                ratio += f" [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
            cells = [f"{1e3 * row.seconds:.3f}", ratio, f"{row.peak_memory / 1e6:.1f}"]
        shape = ",".join(map(str, row.shape))
        lines.append([row.options["model"], shape, row.implementation, *cells])
    return lines
