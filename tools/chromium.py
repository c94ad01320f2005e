"""Chromium for the tools and the browser tests: found, and started without a network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = f"no Chromium: none of {', '.join(NAMES)}; or: playwright install chromium"


def find(playwright: Playwright) -> str | None:
    """Return the program on the path, else playwright's own, else None."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    own = playwright.chromium.executable_path
    return found or (own if Path(own).is_file() else None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium from which no other machine can be reached.

    Raises:
        FileNotFoundError: there is none.
    """
    with sync_playwright() as playwright:
        if (program := find(playwright)) is None:
            raise FileNotFoundError(MISSING)
        browser = playwright.chromium.launch(
            executable_path=program,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        )
        yield browser
        browser.close()
