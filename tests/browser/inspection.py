"""Opens a page as a reader does and says what is wrong with it, one sentence for each problem."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pairs import address
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeout

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
PATIENCE = 120_000  # ms; a busy machine is no problem of the page
WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 360, "height": 740}


def pages(folder: Path) -> list[str]:
    """Every page under `folder`, without the theme's templates and pages that only lead on."""
    static, redirect = folder / "_static", 'http-equiv="refresh"'
    pages = (p for p in sorted(folder.rglob("*.html")) if not p.is_relative_to(static))
    found = (p for p in pages if redirect not in p.read_text("utf-8").lower())
    return [path.relative_to(folder).as_posix() for path in found]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A server on loopback for the folder; gives its address, ending in a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def listen(page: Page, base: str) -> list[str]:
    """From now on, what the page asks of other places, misses or complains about."""
    problems: list[str] = []

    def request(url: str) -> None:
        if not url.startswith((base, "data:", "blob:", "about:")):
            problems.append(f"asks for {url}")

    def response(status: int, url: str) -> None:
        if status >= 400:
            problems.append(f"answered {status}: {url}")

    page.on("request", lambda r: request(r.url))
    page.on("websocket", lambda s: problems.append(f"opens a socket to {s.url}"))
    page.on("requestfailed", lambda r: problems.append(f"could not load {r.url}: {r.failure}"))
    page.on("response", lambda r: response(r.status, r.url))
    page.on("pageerror", lambda e: problems.append(f"script error: {e}"))
    page.on(
        "console",
        lambda m: m.type == "error" and problems.append(f"error in the console: {m.text}"),
    )
    return problems


def problems(browser: Browser, base: str, path: str) -> list[str]:
    """All that is wrong with the page `path` under `base` (a file: or http: address with a slash).

    Looked at wide and as on a phone, in the light and in the dark theme.
    """
    context = browser.new_context(viewport=WIDE, color_scheme="light", reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    found = listen(page, base)
    page.goto(base + quote(path), wait_until="load")
    page.evaluate(SCRIPT)
    page.add_style_tag(content="* { transition: none !important; }")

    def ask(what: str) -> list[str]:
        return page.evaluate(f"inspection.{what}()")

    found += ask("math")
    found += [f"prepares to ask {url}" for url in ask("asks") if not url.startswith(base)]
    found += ask("pictures") + ask("width") + buttons(path, ask("links"))
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        try:
            page.wait_for_function(f"inspection.theme() === '{theme}'", timeout=30_000)
        except PlaywrightTimeout:
            found.append(f"the reader's {theme} theme is not followed")
        found += [f"{theme} theme: {problem}" for problem in ask("contrast")]
    page.set_viewport_size(PHONE)
    found += ask("width")
    context.close()
    return found


def buttons(path: str, links: list[str]) -> list[str]:
    """The faults of the page's buttons to its source, its edit page, Colab and Binder."""
    repository = address()
    owner_and_name = urlsplit(repository).path.strip("/")
    stem = path.removesuffix(".html")
    found = []
    if stem.startswith("notebooks/"):
        source = f"{stem}.ipynb"
        expected = [
            f"https://colab.research.google.com/github/{owner_and_name}/blob/main/{source}",
            f"https://mybinder.org/v2/gh/{owner_and_name}/main?urlpath=lab/tree/{source}",
        ]
    elif stem.startswith("book/"):
        source, expected = f"{stem}.md", []
    else:  # search, the general index, the redirect to the first page: generated, without source
        return found
    up = "../" * path.count("/")
    expected += [f"{repository}/edit/main/{source}", repository, f"{up}_sources/{source}"]
    found += [f"no button leads to {link}" for link in expected if link not in links]
    hosts = ("colab.research.google.com", "mybinder.org")
    for link in links:
        if urlsplit(link).hostname in hosts and unquote(link) not in expected:
            found.append(f"a button leads elsewhere: {link}")
    return found
