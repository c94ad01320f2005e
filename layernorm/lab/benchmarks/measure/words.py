"""From words on a command line to what they name, or to an error that helps."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch

from layernorm.lab import records


def one_of(argument: str, value: str, known: Iterable[str]) -> str:
    """The value, if it is known.

    Raises:
        ValueError: it is not; the message names what is known, or what was probably meant.
    """
    known = list(known)
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument}: expected one of {', '.join(known)}, got {value!r}{hint}")
    return value


def some_of(
    argument: str, text: str | None, known: Iterable[str], default: Iterable[str]
) -> tuple[str, ...]:
    """The names in a text, separated by commas, each once; None: the default.

    Raises:
        ValueError: as `one_of`.
    """
    names = default if text is None else (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(one_of(argument, name, known) for name in names))


def device_of(text: str) -> torch.device:
    """The device of that name; "auto": the GPU if there is one.

    Raises:
        ValueError: there is no such kind of device.
    """
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:1, got {text!r}")
    return device


def check_outputs(json_path: Path | None, profile: str | None) -> None:
    """Refuse before the long measurement what could not be written after it.

    Raises:
        ValueError: the profile is no name, the path is a folder, or in none that can be written to.
    """
    if profile is not None:
        records.key(
            {"experiment": "bench", "profile": profile, "arm": "a", "method": "none", "seed": 0}
        )
    if json_path is not None and not json_path.parent.is_dir():
        raise ValueError(f"json: the folder of {json_path} does not exist; create it first")
    if json_path is not None and json_path.is_dir():
        raise ValueError(f"json: {json_path} is a folder; name a file")
    if json_path is not None:
        try:
            tempfile.TemporaryFile(dir=json_path.parent).close()
        except OSError as error:
            raise ValueError(
                f"json: {json_path.parent} cannot be written to ({error}); name another place"
            ) from error
