"""The command `layernorm doctor`: the fast paths that work here, and why not the others."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import typer

from layernorm import LayerNormLSTM, functional, kernels
from layernorm.cli.text import extras
from layernorm.lab import data, records
from layernorm.recurrent import cpu
from layernorm.recurrent.cpu import binding, build


@dataclass(frozen=True)
class Line:
    """One thing looked at; a problem is something of the package's own that is broken here."""

    topic: str
    name: str
    says: str
    problem: bool = False


def examine() -> Iterator[Line]:
    """Everything `layernorm doctor` shows, in its order."""
    yield from _versions()
    yield from _machine()
    yield from _extras()
    yield from _backends()
    yield _recurrent()
    yield _recurrent_on_gpu()
    yield from _data()
    yield from _records()


def _versions() -> Iterator[Line]:
    yield Line("versions", "layernorm", importlib.metadata.version("layernorm"))
    for name, version in records.environment()["versions"].items():
        yield Line("versions", name, version)


def _machine() -> Iterator[Line]:
    here = records.environment()
    yield Line("machine", "processor", f"{here['cpu'] or 'unknown'} ({here['machine']})")
    yield Line("machine", "instructions", f"torch uses {here['cpu_capability']}")
    yield Line("machine", "threads", str(here["threads"]))
    yield Line("machine", "GPUs", ", ".join(here["gpus"]) or "none that torch can use")
    for compiler in ("g++", "clang++"):
        missing = "not found" + ("; torch.compile needs one on a CPU" if compiler == "g++" else "")
        yield Line("machine", compiler, _first_line(compiler) or missing)


def _first_line(compiler: str) -> str | None:
    """Return the compiler's first line about itself; None where there is none that runs."""
    path = shutil.which(compiler)
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.partition("\n")[0] if done.returncode == 0 else None


def _extras() -> Iterator[Line]:
    for extra, names in extras().items():
        missing = [name for name in names if not _installed(name)]
        remedy = f"lacks {', '.join(missing)}: pip install 'layernorm[{extra}]'"
        yield Line("extras", extra, remedy if missing else "installed")


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _backends() -> Iterator[Line]:
    """Each backend is tried on a small case and compared with the definition."""
    x = torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(4, 6).square()
    expected = functional.layer_norm(x, (6,))
    for backend in kernels.BACKENDS:
        if backend == "triton":
            if reason := _why_no_triton():
                yield Line("backends", backend, reason)
                continue
            x, expected = x.cuda(), expected.cuda()
        try:
            error = (kernels.run("layer_norm", backend, x, (6,), None, None, 1e-5) - expected).abs()
        except Exception as refusal:
            yield Line("backends", backend, f"fails: {refusal}", problem=True)
        else:
            wrong = not bool((error < 1e-12).all())
            says = "differs from the definition" if wrong else "works"
            yield Line("backends", backend, says, problem=wrong)


def _why_no_triton() -> str | None:
    if find_spec("triton") is None:
        return "not installed: pip install 'layernorm[gpu]'"
    if not torch.cuda.is_available():
        version = importlib.metadata.version("triton")
        return f"{version} is installed; its kernels need a CUDA device, and torch can use none"
    return None


def _recurrent() -> Line:
    """The recurrent layers' compiled path, tried on a small case."""
    topic, name = "backends", "recurrent"
    if reason := cpu.missing():
        return Line(topic, name, f"the layers run their definition, slower: {reason}")
    if wrong := _fused_error("cpu"):
        return Line(topic, name, f"the compiled path {wrong}", problem=True)
    file = Path(binding.library()._name)
    where = "with the package" if file.parent == build.PREBUILT else "on this machine"
    return Line(topic, name, f"compiled for {build.instruction_set()} {where}: {file}")


def _recurrent_on_gpu() -> Line:
    """The recurrent layers' kernels, tried on a small case."""
    topic, name = "backends", "recurrent on a GPU"
    if reason := _why_no_triton():
        return Line(topic, name, reason)
    if wrong := _fused_error("cuda"):
        return Line(topic, name, f"the path in Triton {wrong}", problem=True)
    return Line(topic, name, 'backend="fused" works; "auto" uses it where it is known to be faster')


def _fused_error(device: str) -> str:
    """Return the trouble of the fused path there ("": none)."""
    try:
        layer = LayerNormLSTM(3, 5, backend="fused", device=device, dtype=torch.float64)
        x = torch.linspace(-1, 1, 24, device=device, dtype=torch.float64).view(4, 2, 3)
        got = layer(x)[0]
        layer.backend = "reference"
        right = bool((got - layer(x)[0]).abs().max() < 1e-12)
    except Exception as error:
        return f"fails: {error}"
    return "" if right else "differs from the definition"


def _data() -> Iterator[Line]:
    for row in data.describe():
        yield Line("data", row["name"], row["status"])


def _records() -> Iterator[Line]:
    """Sweeps, damaged files and stale runs."""
    try:
        found = records.runs()
    except records.RecordError as error:
        yield Line("records", "damaged", str(error), problem=True)
        return
    sweeps = Counter((run.config["experiment"], run.config["profile"]) for run in found)
    if not sweeps:
        yield Line("records", "runs", "none")
    for (experiment, profile), count in sorted(sweeps.items()):
        runs = f"{count} run{'s' if count > 1 else ''}"
        stale = records.staleness_banner(experiment, profile)
        yield Line(
            "records", f"{experiment} {profile}", f"{runs}. Stale: {stale}" if stale else runs
        )


def doctor() -> None:
    """Show what works here, and why not the rest."""
    broken = False
    topic = None
    for line in examine():
        if line.topic != topic:
            topic = line.topic
            typer.echo(topic)
        typer.echo(f"{'✗' if line.problem else ' '} {line.name:<14} {line.says}")
        broken = broken or line.problem
    if broken:
        typer.echo("Error: what is marked ✗ is broken", err=True)
        raise typer.Exit(1)
