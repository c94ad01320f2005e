"""Every page of the built book, from a file and from a server, in a real browser."""

import pytest
from browser.inspection import PATIENCE, pages, problems, served

pytestmark = pytest.mark.browser


def inspect(browser, base, folder):
    found = {path: problems(browser, base, path) for path in pages(folder)}
    return "\n".join(f"{path}: {problem}" for path, all in found.items() for problem in all)


def test_every_page_opened_from_a_file(browser, book):
    found = inspect(browser, f"{book.as_uri()}/", book)
    assert not found, f"\n{found}"


def test_every_page_from_a_server(browser, book):
    with served(book) as base:
        found = inspect(browser, base, book)
    assert not found, f"\n{found}"


def test_the_address_alone_leads_to_the_first_page(browser, book):
    with served(book) as base:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(base)
        page.wait_for_url(f"{base}book/index.html")
        page.close()
