"""Tables, bars and errors as the commands print them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence

import typer

from layernorm.lab.benchmarks.measure.table import Table


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their longest cell."""
    typer.echo(Table(head, rows).text())


def words(text: str | None) -> tuple[str, ...]:
    """The words between commas; none of None."""
    return tuple(word.strip() for word in text.split(",")) if text else ()


def integers(name: str, text: str | None) -> tuple[int, ...]:
    """The integers between commas, of an option with this name.

    Raises:
        ValueError: naming the option and what came.
    """
    try:
        return tuple(map(int, words(text)))
    except ValueError:
        raise ValueError(f"{name} must be integers with commas, got {text!r}") from None


class Runs:
    """A bar over runs that are made; `ended`: how many of them are."""

    def __init__(self, title: str) -> None:
        from tqdm import tqdm

        self.ended, self.bar = 0, tqdm(desc=title, unit="run", disable=None)

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, ended: int, known: int, name: str) -> None:
        """Go on to so many runs of those that are known, the last one of this name."""
        self.ended, self.bar.total = ended, known
        self.bar.set_postfix_str(name, refresh=False)
        self.bar.update(ended - self.bar.n)


def print_error(error: Exception) -> None:
    """One line; for a missing module of an extra it ends with the command that installs it."""
    remedy = ""
    for missing in (error, error.__cause__):
        if isinstance(missing, ModuleNotFoundError) and missing.name:
            name = missing.name.partition(".")[0]
            name = {"sklearn": "scikit-learn", "yaml": "pyyaml"}.get(name, name)
            for extra in (extra for extra, names in extras().items() if name in names):
                remedy = f"; install it with: pip install 'layernorm[{extra}]'"
                break
    typer.echo(f"Error: {error}{remedy}", err=True)


def extras() -> dict[str, list[str]]:
    """The packages that each optional extra of the metadata installs."""
    needs: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires("layernorm") or ()
    except importlib.metadata.PackageNotFoundError:  # the source, not installed
        return needs
    for requirement in requirements:
        extra = re.search(r"""extra == ["'](\w+)["']""", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra and name and name[0] != "layernorm":
            needs.setdefault(extra[1], []).append(name[0])
    return dict(sorted(needs.items()))
