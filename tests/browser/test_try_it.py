"""The page "Try it in the page" in Chromium: Python runs on a click, and no other page loads it."""

import runpy
from pathlib import Path

import pytest
from browser.inspection import PATIENCE, PHONE, SCRIPT, WIDE, listen, pages, served

pytestmark = pytest.mark.browser
PAGE = "book/try-it.html"
ROOT = Path(__file__).parents[2]
run = runpy.run_path(str(ROOT / "book" / "_static" / "run_cells.py"))["run"]


@pytest.fixture
def live(book):
    """The book, if Pyodide was there when it was built."""
    if not (book / "_static" / "pyodide").is_dir():
        pytest.skip("built without Pyodide (book/how-to-run.md): the page has no Run buttons")
    return book


@pytest.fixture
def page(request, browser, live):
    """The page from a server; `page.asked` has the path of every request."""
    with served(live) as base:
        page = browser.new_page(viewport=getattr(request, "param", WIDE))
        page.set_default_timeout(3 * PATIENCE)  # Python alone takes five seconds of a processor
        complaints = listen(page, base)
        page.asked = []
        page.on("request", lambda r: page.asked.append(r.url.removeprefix(base)))
        page.goto(base + PAGE)
        page.get_by_role("button", name="Run").first.wait_for()
        yield page
        page.close()
        assert not complaints


def cells(page):
    return page.locator("div.try-it").all()


def codes(page):
    return [cell.locator(".cell_input pre").inner_text() for cell in cells(page)]


def outputs(page):
    return [cell.locator(".cell_output pre").text_content() for cell in cells(page)]


def click(page, index):
    """Run the cell and wait until it has run."""
    cells(page)[index].get_by_role("button", name="Run").click()
    page.locator("div.try-it[aria-busy=true]").wait_for(state="detached")


def change(page, index, old, new):
    code = cells(page)[index].locator(".cell_input pre")
    text = code.inner_text()
    assert old in text
    code.fill(text.replace(old, new))


@pytest.mark.parametrize("page", [WIDE, PHONE], ids=["wide", "phone"], indirect=True)
def test_the_browser_computes_what_cpython_does(page):
    assert not [path for path in page.asked if "pyodide" in path or "worker" in path]
    shown = outputs(page)
    click(page, len(shown) - 1)
    assert "_static/pyodide/pyodide.asm.wasm" in page.asked
    assert [text.strip() for text in outputs(page)] == [text.strip() for text in shown]
    change(page, 0, "[1, 2, 6]", "[50, -2, 6]")
    click(page, len(shown) - 1)
    expected, failed = run(codes(page))
    assert not failed
    assert outputs(page) == expected
    assert outputs(page)[1].strip() != shown[1].strip()
    page.evaluate(SCRIPT)
    assert page.evaluate("inspection.width()") == []
    assert page.evaluate("inspection.contrast()") == []


def test_an_error_is_shown_where_it_arose_and_can_be_mended(page):
    change(page, 1, "centered**2", "no_such_name**2")
    click(page, 2)
    message = outputs(page)[1]
    assert "NameError: name 'no_such_name' is not defined" in message
    assert message == run(codes(page)[:2])[0][1]
    assert outputs(page)[2] == "Not run: cell 2 above raised an error."
    assert page.locator("div.try-it.failed").count() == 1
    change(page, 1, "no_such_name**2", "centered**2")
    cells(page)[2].locator(".cell_input pre").press("Shift+Enter")
    page.locator("div.try-it.failed").wait_for(state="detached")
    assert outputs(page)[:3] == run(codes(page)[:3])[0]


def test_a_loop_without_end_can_be_stopped(page):
    click(page, 0)
    change(page, 0, codes(page)[0], "print('begun')\nwhile True:\n    pass")
    cells(page)[0].get_by_role("button", name="Run").click()
    page.wait_for_timeout(500)
    cells(page)[0].get_by_role("button", name="Stop").click()
    assert outputs(page)[0] == "Stopped."
    change(page, 0, "while True:", "while False:")
    click(page, 0)
    assert outputs(page)[0] == "begun\n"


def test_without_a_server_the_page_says_what_to_do(browser, book):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    complaints = listen(page, "file:")
    page.goto(f"{book.as_uri()}/{PAGE}")
    assert page.locator("div.try-it-missing").is_visible()
    assert page.locator("div.try-it button:has-text('Run')").count() == 0
    page.close()
    assert not complaints


def test_only_this_page_loads_the_script(live):
    found = [path for path in pages(live) if "try-it.js" in (live / path).read_text("utf-8")]
    assert found == [PAGE]
