"""Checkpoints: a run's whole state in one file, there complete or not at all."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layernorm.lab.records import files


def write(path: Path, state: dict[str, Any]) -> None:
    """Puts the state in place of an earlier one, as `files.write_bytes`. Its hash leads, and it
    names the run that it is of, whose key the file is called after."""
    buffer = io.BytesIO()
    torch.save({**state, "run": path.stem}, buffer)
    archive = buffer.getbuffer()
    files.write_bytes(path, hashlib.sha256(archive).digest(), archive)


def sweep_up(path: Path) -> None:
    """Delete what a process left behind that was killed while it wrote this or the record."""
    for left in path.parent.glob(f".{path.stem}.*.tmp"):
        left.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """The state in a file; tensors are on the CPU.

    Raises `FileNotFoundError`, and `ValueError` for a file that is damaged.
    """
    content = path.read_bytes()
    digest, archive = content[:32], content[32:]
    if hashlib.sha256(archive).digest() != digest:
        raise ValueError(f"{path} is damaged: its content does not have the hash it begins with")
    try:
        state = torch.load(io.BytesIO(archive), map_location="cpu", weights_only=True)
    except Exception as error:  # the hash is right, so somebody wrote this
        raise ValueError(f"{path} is no checkpoint: {error!r}") from error
    if not isinstance(state, dict):
        raise ValueError(f"{path} is no checkpoint: it holds {type(state).__name__}")
    return state


def generators(device: torch.device) -> dict[str, Any]:
    """The states of all random number generators that a run could draw from."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - somebody else's code may draw there
    state = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": [kind, keys.tolist(), *rest],
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_generators(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["torch"])
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within it, every generator starts from the seed; after it, they are as they were before."""
    before = generators(device)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds all GPUs, too
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        restore_generators(before, device)


def left(file: Path | None, code: str) -> dict[str, Any] | None:
    """The checkpoint of the run that the file is called after, if there is one of the code with
    that digest; another is put aside."""
    if file is None or not file.exists():
        return None
    try:
        state = read(file)
        if state.get("run") != file.stem:
            put_aside(file, "is of another run")
        elif state.get("code") != code:
            put_aside(file, "was written by other code")
        else:
            return state
    except ValueError as error:
        put_aside(file, str(error))
    return None


def put_aside(file: Path, why: str) -> None:
    """Give a checkpoint that cannot be used another name, and say so."""
    aside = file.with_suffix(".checkpoint.old")
    file.replace(aside)
    say(f"the checkpoint {why}; it is now {aside.name}, and the run starts anew")


def check_room(folder: Path, tensors: Iterable[Tensor]) -> None:
    """Raises `OSError` if the folder cannot be written to, or has no room for two checkpoints of
    these tensors."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(
            f"runs cannot be kept in {folder}: {error.strerror}; make it a folder that can be "
            "written to, or set LAYERNORM_RUNS to another one"
        ) from error
    need = 2 * sum(t.numel() * t.element_size() for t in tensors) + 2**20
    free = shutil.disk_usage(folder).free
    if free < need:
        raise OSError(
            f"{folder} has {free / 2**20:.0f} MiB of free space, this run needs "
            f"{need / 2**20:.0f} MiB; make room or set LAYERNORM_RUNS to another folder"
        )


def say(sentence: str) -> None:
    print(f"layernorm: {sentence}", file=sys.stderr)
