"""Read words of a command line; an error says what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import torch


def one_of(argument: str, value: str, known: Iterable[str]) -> str:
    """Return the value if it is known.

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
    """Return the names in a text, separated by commas, each once; None: the default.

    Raises:
        ValueError: as `one_of`.
    """
    names = default if text is None else (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(one_of(argument, name, known) for name in names))


def device_of(text: str) -> torch.device:
    """Return the device of that name; "auto": the GPU if there is one.

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


def positive(text: str, between: str, count: int, expected: str) -> tuple[int, ...]:
    """Read `count` positive integers with the sign `between` them.

    Raises:
        ValueError: the text is something else; the message says what was expected.
    """
    numbers = [number.strip() for number in text.split(between)]
    if len(numbers) != count or not all(n.isdecimal() and int(n) > 0 for n in numbers):
        raise ValueError(f"shapes: expected {expected}; got {text!r}")
    return tuple(map(int, numbers))
