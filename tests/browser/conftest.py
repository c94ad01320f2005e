"""One Chromium for all browser tests, and the book as it was built."""

import os
from pathlib import Path

import pytest
from chromium import chromium


@pytest.fixture(scope="session")
def browser():
    """A Chromium from which no other machine can be reached, found on the path or playwright's."""
    try:
        with chromium() as started:
            yield started
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def book() -> Path:
    """The folder of built pages: $LAYERNORM_HTML, else _build/html."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("LAYERNORM_HTML", root / "_build" / "html")).resolve()
    if not (folder / "book" / "index.html").is_file():
        pytest.fail(f"no built book in {folder}: run `make book` first, or set LAYERNORM_HTML")
    return folder
