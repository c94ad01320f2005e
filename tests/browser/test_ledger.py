"""The ledger in the built book: its filter, and the links from a claim to its chapter."""

import pytest
from browser.inspection import PATIENCE, PHONE, WIDE, listen

pytestmark = pytest.mark.browser
PAGE = "notebooks/the-ledger.html"
BEFORE = "notebooks/21-the-ledger.html"  # until the ledger lost its number


@pytest.fixture(params=[WIDE, PHONE], ids=["wide", "phone"])
def page(request, browser, book):
    page = browser.new_page(viewport=request.param)
    page.set_default_timeout(PATIENCE)
    complaints = listen(page, "file:")
    page.goto(f"{book.as_uri()}/{PAGE}")
    yield page
    page.close()
    assert not complaints


def shown(page):
    """The ids of the claims whose rows are visible."""
    rows = page.locator("div.ledger tr[data-verdict]:visible")
    return rows.locator("code").evaluate_all("(all) => all.map((e) => e.textContent)")


def found(page):
    """The number that the page says it has found."""
    return int(page.locator(".ledger-filter output").inner_text().split()[0])


@pytest.fixture
def rows(page):
    """The page's rows, one for each claim: id, verdict, kind, and who says it."""
    return page.locator("div.ledger tr[data-verdict]").evaluate_all(
        "(all) => all.map((e) => ({ ...e.dataset, id: e.querySelector('code').textContent }))"
    )


def test_at_first_every_claim_is_there_and_folded(page, rows):
    assert found(page) == len(rows) > 100
    assert shown(page) == []
    page.locator("div.ledger summary").first.click()
    opened = shown(page)
    assert opened == [row["id"] for row in rows[: len(opened)]]


def test_typing_makes_rows_vanish_until_it_is_deleted(page, rows):
    words = page.get_by_label("words")
    words.press_sequentially("batch")
    several = shown(page)
    assert 1 < len(several) == found(page) < len(rows)
    words.press_sequentially(" no-such-claim")
    assert shown(page) == []
    assert found(page) == 0
    assert not page.locator("div.ledger summary:visible").count()
    words.fill("gradient-has-mean")
    assert shown(page) == ["gradient-has-mean-zero"]
    words.press("Control+a")
    words.press("Backspace")
    assert shown(page) == []
    assert found(page) == len(rows)


@pytest.mark.parametrize(
    ("label", "value", "fits"),
    [
        ("kind", "proof", lambda row: row["kind"] == "proof"),
        ("verdict", "refuted", lambda row: row["verdict"] == "refuted"),
        ("said by", "summary D", lambda row: "summary D" in row["said"]),
        ("said by", "paper", lambda row: "paper" in row["said"]),
    ],
)
def test_choices_filter(label, value, fits, page, rows):
    page.locator(".ledger-filter").get_by_label(label).select_option(value)
    expected = [row["id"] for row in rows if fits(row)]
    assert shown(page) == expected
    assert 0 < len(expected) < len(rows)


def test_choices_and_words_hold_together(page, rows):
    page.locator(".ledger-filter").get_by_label("verdict").select_option("proved")
    page.locator(".ledger-filter").get_by_label("kind").select_option("proof")
    both = [r["id"] for r in rows if (r["verdict"], r["kind"]) == ("proved", "proof")]
    assert shown(page) == both
    page.get_by_label("words").fill(both[0])
    assert shown(page) == [both[0]]


def test_a_claim_leads_to_the_row_that_decides_it(page):
    page.get_by_label("words").fill("gradient-has-mean-zero")
    page.locator("div.ledger a:visible", has_text="where it is decided").click()
    page.wait_for_url("**/05-the-backward-pass.html#claim-gradient-has-mean-zero")
    target = page.locator("tr:target")
    assert "gradient-has-mean-zero" in target.text_content()
    page.wait_for_function(
        "() => { const { top } = document.querySelector('tr:target').getBoundingClientRect();"
        " return top >= 0 && top < innerHeight; }"
    )


def test_the_old_address_leads_to_the_same_place(browser, book):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{book.as_uri()}/{BEFORE}#errata-of-the-paper")
    page.wait_for_url(f"**/{PAGE}#errata-of-the-paper")
    assert page.locator("div.ledger").count() == 1
    page.close()
