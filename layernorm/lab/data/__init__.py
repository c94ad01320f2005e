"""Data sets: an embedded default, and real ones that are downloaded once and checked.

`digits()`, `mnist()` and `cifar10()` load; `DATASETS`, `describe`, `fetch` and `verify` are what
`layernorm data list|fetch|verify` shows and does.
"""

from layernorm.lab.data.cifar10 import CIFAR10, cifar10
from layernorm.lab.data.dataset import Dataset
from layernorm.lab.data.digits import DIGITS, digits
from layernorm.lab.data.mnist import MNIST, mnist
from layernorm.lab.data.pinned import Found
from layernorm.lab.data.splits import Examples, Splits

__all__ = [
    "DATASETS",
    "Dataset",
    "Examples",
    "Found",
    "Splits",
    "cifar10",
    "describe",
    "digits",
    "fetch",
    "mnist",
    "verify",
]

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (DIGITS, MNIST, CIFAR10)}


def describe() -> list[dict[str, str]]:
    """One row per data set: name, what, license, and where it is now."""
    return [
        {
            "name": dataset.name,
            "what": dataset.what,
            "license": dataset.license,
            "status": dataset.status(),
        }
        for dataset in DATASETS.values()
    ]


def fetch(name: str) -> list[Found]:
    """Download the data set's files unless they are here; the checked files, one row each.

    Raises:
        ValueError: no data set of this name, or a file of the reader's own is not the pinned one.
        OSError: every mirror failed; says how, and what to do by hand.
    """
    return _known(name).fetch()


def verify(name: str) -> list[Found]:
    """Check the data set's hashes without downloading; the checked files, one row each.

    Raises:
        ValueError: no data set of this name, or data that are not the pinned ones.
        FileNotFoundError: a file is not here.
    """
    return _known(name).verify()


def _known(name: str) -> Dataset:
    if name not in DATASETS:
        raise ValueError(f"data set: expected one of {', '.join(DATASETS)}, got {name!r}")
    return DATASETS[name]
