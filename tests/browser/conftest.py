"""One Chromium for all browser tests, and the book as it was built."""

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """A Chromium from which no other machine can be reached, found on the path or playwright's."""
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = [shutil.which(name) for name in NAMES] + [own if Path(own).is_file() else None]
        executable = next((path for path in found if path), None)
        if executable is None:
            pytest.skip(f"no Chromium: none of {', '.join(NAMES)}; or: playwright install chromium")
        chromium = playwright.chromium.launch(
            executable_path=executable,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def book() -> Path:
    """The folder of built pages: $LAYERNORM_HTML, else _build/html."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("LAYERNORM_HTML", root / "_build" / "html")).resolve()
    if not (folder / "book" / "index.html").is_file():
        pytest.fail(f"no built book in {folder}: run `make book` first, or set LAYERNORM_HTML")
    return folder
