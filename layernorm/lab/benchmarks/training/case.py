"""The cost of normalization in a whole update: forward, loss, backward and a step of Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from layernorm.lab.benchmarks.measure import gate, resume
from layernorm.lab.benchmarks.measure.case import Case, Row, Shape, Trial
from layernorm.lab.benchmarks.measure.process import measure_apart
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.table import Table, megabytes, ratio, shape
from layernorm.lab.benchmarks.measure.words import device_of, one_of, some_of
from layernorm.lab.benchmarks.training.subjects import (
    CASES,
    CLASSES,
    EPS,
    RATE,
    SUBJECTS,
    Subject,
    Update,
    make_update,
)

EXACT = 1e-9  # error allowed in float64, relative to each element or the root mean square
ROUNDED = 1e-2  # in float32, of a gradient's length: a ReLU's input may round to its other side
LARGE = (784, 1000, 1000, 10)
SHAPES: dict[str, tuple[Shape, ...]] = {
    "mlp": ((128, *LARGE), (4, *LARGE), (1, *LARGE)),
    "digits": ((128, 64, 128, 128, 10), (4, 64, 128, 128, 10), (1, 64, 128, 128, 10)),
    "lstm": ((50, 32, 128, 128), (50, 4, 128, 128)),
    "engine": ((128, *LARGE), (4, *LARGE)),
}
USUAL = ("mlp", "digits", "lstm")  # models that normalization makes a difference to

Make = Callable[[torch.dtype], Update]


def judge(subject: Subject, make: Make) -> gate.Verdict:
    """The worst error of one update, as a fraction of what is allowed.

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
    wrong = f"{worst} is off by {error:.2g} times what is allowed"
    return gate.Verdict(error, "" if error <= 1 else wrong)


@dataclass(frozen=True)
class TrainingCase(Case):
    """An update of a model: "mlp", "digits" or "engine", for shapes (batch, inputs, hidden
    units..., 10), or "lstm", for (T, B, I, H): steps, sequences, inputs, units.

    Ratios are to the same model without normalization, of "engine" to the loop written by hand.
    On a CPU several processes measure.

    Args:
        implementations: names in `SUBJECTS[operation]`; none: all that this device and batch allow.
    """

    mode: str = "training"
    rounds: int = 5
    sample_seconds: float = 0.02
    processes: int = 10

    MODES: ClassVar[tuple[str, ...]] = ("training",)

    def __post_init__(self) -> None:
        known, cuda = SUBJECTS.get(self.operation, {}), self.device.startswith("cuda")
        allowed = [n for n, s in known.items() if s.least <= self.batch and (cuda or not s.cuda)]
        object.__setattr__(self, "implementations", self.implementations or tuple(allowed))

    @property
    def benchmark(self) -> str:
        return "engine" if self.operation == "engine" else "training"

    @property
    def baselines(self) -> tuple[str, ...]:
        return (next(iter(SUBJECTS[self.operation])),)

    @property
    def options(self) -> dict[str, Any]:
        return {"model": self.operation, "threads": self.threads}

    @property
    def batch(self) -> int:
        """Cases, or sequences."""
        return (*self.shape, 0, 0)[1 if self.operation == "lstm" else 0]

    def method(self, name: str) -> str:
        return SUBJECTS[self.operation][name].method

    def check(self) -> None:
        model, known = self.operation, SUBJECTS[one_of("model", self.operation, SUBJECTS)]
        right = len(self.shape) == 4
        if model != "lstm":
            right = len(self.shape) >= 3 and self.shape[-1] == CLASSES
        if not right or not all(isinstance(n, int) and n > 0 for n in self.shape):
            form = "T, B, I, H" if model == "lstm" else f"batch, inputs, hidden units..., {CLASSES}"
            raise ValueError(
                f"shape: expected positive integers {form} for {model}, got {self.shape}"
            )
        if self.batch > CASES:
            raise ValueError(f"shape: expected a batch of at most {CASES}, got {self.batch}")
        for name in self.implementations:
            if self.batch < known[one_of("subjects", name, known)].least:
                raise ValueError(f"subjects: {name} takes at least 2 cases, shape has {self.batch}")
        super().check()

    def measured(self) -> list[Row]:
        return super().measured() if self.processes == 1 else measure_apart(self, {})

    def prepare(self) -> Callable[[str], Trial]:
        def trial(name: str) -> Trial:
            subject = SUBJECTS[self.operation][name]
            make = partial(make_update, subject, self.operation, self.shape, self.device, self.seed)
            update = make(torch.float32)
            return Trial(update, lambda _: judge(subject, make), rest=update.optimizer.zero_grad)

        return trial


def plan(
    models: str | None,
    device: str,
    quick: bool = False,
    profile: str | None = None,
    processes: int | None = None,
    **fields: Any,
) -> Plan:
    """The plan that these words describe: models at each of their shapes; None: those that
    normalization makes a difference to; device "auto": a GPU if there is one; processes measure,
    None: ten on a CPU, one on a GPU or if it shall be quick.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    names = some_of("models", models, SUBJECTS, USUAL)
    one_of("device", device, ["auto", "cpu", "cuda"])
    on = device_of(device).type
    usual = {"rounds": 11, "processes": 1} if on == "cuda" else {}
    fields = {**usual, **({"rounds": 7, "processes": 1} if quick else {}), **fields}
    fields |= {} if processes is None else {"processes": processes}
    return tuple(
        TrainingCase(model, shape, device=on, profile=profile, **fields)
        for model in names
        for shape in SHAPES[model]
    )


def recorded(profile: str = "cpu", benchmark: str = "training") -> list[Row]:
    """The rows of the records there are, in the order in which they are measured."""

    def place(row: Row) -> tuple:
        model = row.options.get("model", benchmark)
        order = list(SUBJECTS).index(model), list(SUBJECTS[model]).index(row.implementation)
        return row.machine, order[0], [-n for n in row.shape], order[1]

    return sorted(resume.recorded(benchmark, profile), key=place)


def table(rows: Sequence[Row]) -> Table:
    """Implementations down; ratios are to the same model without normalization."""
    head = ["model", "shape", "implementation", "ms/update", "ratio [95% interval]", "peak MB"]
    lines = []
    for row in rows:
        cells = ["", row.status, ""]
        if row.seconds is not None:
            digits = 3 if row.benchmark == "engine" else 2
            peak = megabytes(row.peak_memory)
            cells = [f"{1e3 * row.seconds:.3f}", ratio(row, digits), peak]
        model = row.options.get("model", row.benchmark)
        lines.append([model, shape(row), row.implementation, *cells])
    return Table(head, lines)
