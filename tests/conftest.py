"""Checks the annotated shapes of every call into the package while the tests run, and says which
files `make test FAST=1` leaves out: `python tests/conftest.py` prints them."""

from pathlib import Path

FOLDER = Path(__file__).parent
# All that take longer than ten seconds of a processor each; the others take two minutes together.
SLOW = ["recurrent/test_native_mutants.py"]


def pytest_configure():
    from jaxtyping import install_import_hook

    install_import_hook("layernorm", "typechecker.check")


def pytest_collection_modifyitems(items):
    slow = {FOLDER / name for name in SLOW}
    for item in items:
        if item.path in slow:
            item.add_marker("slow")


if __name__ == "__main__":
    print(*(f"{FOLDER.name}/{name}" for name in SLOW))
