"""On a phone, figures keep labels that can be read, and the page does not move sideways."""

import io

import pytest
from browser.inspection import PATIENCE, PHONE
from matplotlib.image import imread

pytestmark = pytest.mark.browser
PAGE = "notebooks/18-handwriting.html"
LEAST = 0.7  # of the size at which a figure is drawn, with letters of 15 px


@pytest.fixture(params=["light", "dark"])
def page(browser, book, request):
    page = browser.new_page(viewport=PHONE)
    page.set_default_timeout(PATIENCE)
    page.add_init_script(f"localStorage.mode = localStorage.theme = '{request.param}'")
    page.goto(f"{book.as_uri()}/{PAGE}", wait_until="load")
    yield page
    page.close()


def left(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_a_figure_scrolls_inside_its_frame_to_its_end(page):
    figures = page.locator("div.cell_output figure:has(> img)")
    assert figures.count() > 2
    wide = 0
    for figure in figures.all():
        figure.locator("img").scroll_into_view_if_needed()
        drawn = figure.locator("img").evaluate("(i) => i.naturalWidth")
        assert figure.locator("img").bounding_box()["width"] >= LEAST * drawn
        figure.evaluate("(f) => { f.scrollLeft = 10000; }")
        frame, image, caption = (
            figure.locator(part).first.bounding_box() if part else figure.bounding_box()
            for part in ("", "img", "figcaption")
        )
        assert image["x"] + image["width"] <= frame["x"] + frame["width"] + 1
        assert frame["x"] - 1 <= caption["x"]
        assert caption["x"] + caption["width"] <= frame["x"] + frame["width"] + 1
        wide += image["width"] > frame["width"]
    assert wide > 2
    assert left(page) <= 0


def test_a_figure_has_the_pages_ground(page):
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    expected = [int(value) for value in body.removeprefix("rgb(").rstrip(")").split(",")]
    picture = page.locator("div.cell_output figure:has(> img)").first.screenshot()
    corner = imread(io.BytesIO(picture), format="png")[8, 8, :3] * 255
    assert abs(corner - expected).max() <= 1


def test_what_goes_on_sideways_says_so(page):
    """A figure above its caption; code by fading, first to the right and at its end to the left."""
    said = []
    for figure in page.locator("div.cell_output figure:has(> img)").all():
        figure.scroll_into_view_if_needed()
        wide = figure.evaluate("(f) => f.scrollWidth > f.clientWidth")
        hint = "(c) => parseFloat(getComputedStyle(c, '::before').fontSize) > 9"
        assert figure.locator("figcaption").evaluate(hint) == wide
        said.append(wide)
    assert any(said)

    code = page.locator("div.cell_input pre").all()
    wide = next(c for c in code if c.evaluate("(c) => c.scrollWidth > c.clientWidth + 150"))
    whole = next(
        c for c in code if c.evaluate("(c) => 0 < c.clientWidth && c.scrollWidth == c.clientWidth")
    )
    faded = """(c) => ['left', 'right'].map(
        (side) => parseFloat(getComputedStyle(c).getPropertyValue(`--fade-${side}`)) > 10)"""
    assert whole.evaluate(faded) == [False, False]
    assert wide.evaluate(faded) == [False, True]
    for place, expected in ((100, [True, True]), (10000, [True, False])):
        wide.evaluate(f"""async (c) => {{
            c.scrollLeft = {place};
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        }}""")
        assert wide.evaluate(faded) == expected
