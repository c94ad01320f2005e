"""The interactive figure in the built book: numbers, sliders, and the picture without scripts."""

import json
import random
from dataclasses import asdict, replace

import pytest
import torch
from browser.inspection import PATIENCE, PHONE, listen, pages

from layernorm.lab import invariance_figure
from layernorm.lab.invariance_figure import NAMES, SCALES, SHIFTS, TABLE_1, Sliders

pytestmark = pytest.mark.browser

MOVES = [
    *({"case_scale": s} for s in (2.0, -1.0)),
    *({"case_shift": s} for s in (1.0, -2.75)),
    {"unit_scale": 0.25},
    {"unit_shift": -1.5},
    {"data_scale": 4.0},
    {"data_shift": 3.0},
    {"case_scale": 3.0, "case_shift": -1.0},
    {"unit_scale": 2.0, "unit_shift": 1.0, "data_scale": 0.5, "data_shift": 0.25},
]


CENTERS = """([selector]) => [...document.querySelectorAll(selector)].map((e) => {
  const { top, bottom } = e.getBoundingClientRect();
  return (top + bottom) / 2;
})"""


@pytest.fixture(scope="module")
def address(book):
    """The first of the pages that show the figure: that of chapter 4."""
    return addresses(book)[0]


def addresses(book):
    """The pages of chapters 4 and 6, with the sliders of summed inputs and those of Table 1."""
    found = [p for p in pages(book) if 'class="invariance"' in (book / p).read_text("utf-8")]
    assert len(found) == 2, f"expected two pages with the interactive figure, found {found}"
    return [f"{book.as_uri()}/{page}" for page in sorted(map(str, found))]


@pytest.fixture(scope="module")
def opened(browser, address):
    page = browser.new_page(reduced_motion="no-preference")
    page.set_default_timeout(PATIENCE)
    complaints = listen(page, "file:")
    page.goto(address)
    yield page
    page.close()
    assert not complaints


@pytest.fixture
def page(opened):
    """The page with all sliders at rest."""
    opened.get_by_role("button", name="Reset all sliders").click()
    return opened


def shown(page):
    """The verdict under each method, as the reader sees it."""
    texts = {name: page.locator(f"[data-method={name}] .verdict").inner_text() for name in NAMES}
    return {name: text.strip() for name, text in texts.items()}


def move(page, **sliders):
    """Moves sliders by the keyboard: one press of an arrow key for each step."""
    for name, value in sliders.items():
        values = SCALES if name.endswith("scale") else SHIFTS
        steps = values.index(value) - values.index(getattr(Sliders(), name))
        page.locator(f"input[name={name}]").focus()
        for _ in range(abs(steps)):
            page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")


def test_the_browser_computes_what_the_definitions_give(page):
    chance = random.Random(0)
    settings = [Sliders()] + [
        Sliders(*(chance.choice(values) for _ in range(4) for values in (SCALES, SHIFTS)))
        for _ in range(200)
    ]
    computed = page.evaluate(
        """(settings) => {
          const { specification } = document.querySelector(".invariance").dataset;
          return settings.map((s) => layernormInvariance.outputs(JSON.parse(specification), s));
        }""",
        [asdict(s) for s in settings],
    )
    for s, in_browser in zip(settings, computed, strict=True):
        for name, expected in invariance_figure.outputs(s).items():
            actual = torch.tensor(in_browser[name], dtype=torch.float64)
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9, msg=f"{name}: {s}")


@pytest.mark.parametrize("sliders", MOVES, ids=json.dumps)
def test_by_keyboard_every_verdict_is_right(sliders, page):
    assert set(shown(page).values()) == {"unchanged"}
    move(page, **sliders)
    expected = invariance_figure.verdicts(replace(Sliders(), **sliders))
    assert shown(page) == expected
    for name in NAMES:  # and in words for those who do not see it
        assert expected[name] in page.locator(f"[data-method={name}] svg").get_attribute(
            "aria-label"
        )
        assert expected[name] in page.locator(".spoken").text_content()


def test_chapter_6_has_the_sliders_of_table_1(browser, book):
    page = browser.new_page()
    page.goto(addresses(book)[1])
    names = page.locator(".invariance input").evaluate_all("(all) => all.map((e) => e.name)")
    assert sorted(names) == sorted(TABLE_1)
    move(page, weights_shift=1.0)
    assert shown(page) == invariance_figure.verdicts(Sliders(weights_shift=1.0))
    page.close()


def test_by_mouse(page):
    box = page.locator("input[name=case_shift]").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"], middle, steps=4)
    dragging = shown(page)  # the verdicts are live, not only when the slider is let go
    page.mouse.up()
    assert dragging == shown(page) == invariance_figure.verdicts(Sliders(case_shift=SHIFTS[-1]))
    page.get_by_role("button", name="Reset all sliders").click()
    assert set(shown(page).values()) == {"unchanged"}


def test_dots_stand_where_the_outputs_are(page):
    """The distance of a dot from its ring, in units of the outputs, is the change of the output."""
    move(page, case_shift=1.0)
    before, after = (
        invariance_figure.outputs(Sliders()),
        invariance_figure.outputs(Sliders(case_shift=1.0)),
    )
    page.wait_for_timeout(300)  # the dots glide to their places
    for name in NAMES:
        ring, dot = (
            torch.tensor(page.evaluate(CENTERS, [f"[data-method={name}] {kind}"])).double()
            for kind in (".ring", ".dot")
        )
        scale = (ring.max() - ring.min()) / (before[name].max() - before[name].min())
        inside = after[name].flatten().abs() <= 3.2
        change = ((after[name] - before[name]).flatten() * -scale)[inside]
        torch.testing.assert_close((dot - ring)[inside], change, rtol=0, atol=0.6)


def test_every_slider_has_a_name_a_value_in_words_and_a_visible_focus(page):
    sliders = page.get_by_role("slider")
    assert sliders.count() == 6
    for thing in ("one case", "one unit", "the data"):
        for kind in ("scale", "shift"):
            page.get_by_role("group", name=thing).get_by_role("slider", name=kind).wait_for()
    move(page, unit_scale=2.0)
    assert page.locator("input[name=unit_scale]").get_attribute("aria-valuetext") == "times 2"
    style = page.evaluate(
        "(({ outlineStyle, outlineWidth }) => [outlineStyle, outlineWidth])"
        "(getComputedStyle(document.activeElement))"
    )
    assert style == ["solid", "3px"]


@pytest.mark.parametrize(("motion", "seconds"), [("no-preference", "0.15s"), ("reduce", "0s")])
def test_motion_stops_where_the_reader_wants_none(motion, seconds, browser, address):
    page = browser.new_page(reduced_motion=motion)
    page.goto(address)
    dot = page.locator(".invariance .dot").first
    assert dot.evaluate("(e) => getComputedStyle(e).transitionDuration") == seconds
    page.close()


def test_without_scripts_the_picture_is_shown(browser, address):
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto(address)
    picture = page.locator(".invariance img")
    assert picture.is_visible()
    assert picture.get_attribute("alt") == invariance_figure.description()
    assert picture.bounding_box()["width"] <= PHONE["width"]
    context.close()
