"""In the dark, figures and the paper's boxes have the page's ground."""

import io

import pytest
from browser.inspection import PATIENCE, WIDE
from matplotlib.image import imread

pytestmark = pytest.mark.browser
PAGE = "notebooks/09-layer-normalized-lstm-and-gru.html"


@pytest.fixture
def page(browser, book):
    page = browser.new_page(viewport=WIDE)
    page.set_default_timeout(PATIENCE)
    page.add_init_script("localStorage.mode = localStorage.theme = 'dark'")
    page.goto(f"{book.as_uri()}/{PAGE}")
    yield page
    page.close()


def colors(locator):
    """The colors of an element's pixels as they are shown, 0 to 255, by row and column."""
    pixels = imread(io.BytesIO(locator.screenshot()), format="png")
    return (pixels[..., :3] * 255).round()


def test_a_figure_has_the_pages_ground_and_light_letters(page):
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    expected = [int(value) for value in ground.removeprefix("rgb(").rstrip(")").split(",")]
    figure = colors(page.locator(".cell_output img").first)
    corners = figure[[1, 1, -2, -2], [1, -2, 1, -2]]
    assert abs(corners - expected).max() <= 1
    assert figure.max() > 200


def test_the_papers_box_has_no_ground_of_its_own(page, book):
    page.goto(f"{book.as_uri()}/notebooks/17-draw.html")
    box = page.locator("div.cell_output .text_html:has(.paper-box)")
    assert box.evaluate("(e) => getComputedStyle(e).backgroundColor") == "rgba(0, 0, 0, 0)"


def test_the_front_pages_picture_is_dark(page, book):
    page.goto(f"{book.as_uri()}/book/index.html")
    picture = colors(page.locator('img[src$="one-picture.svg"]'))
    assert picture[[8, 8, -9, -9], [8, -9, 8, -9]].max() < 40  # the page's ground is 18
    assert picture.max() > 200


def test_a_picture_of_digits_is_light_ink_on_the_pages_ground(page, book):
    page.goto(f"{book.as_uri()}/notebooks/17-draw.html")
    picture = colors(page.locator("#fig-17-samples img"))
    assert picture.mean() < 90  # most of it is ground: 18
    assert picture.max() > 200
