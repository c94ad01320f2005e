"""The decks of all parts, opened from files in a real browser."""

import pytest
import slides
from browser.inspection import PATIENCE, SCRIPT, listen

pytestmark = pytest.mark.browser
SLIDE = {"width": 960, "height": 700}
# How far each slide's content reaches, in pixels of the slide, and how high its picture is. What
# screen readers alone get of an equation is not laid out.
EXTENT = """() => {
  const found = [];
  for (const slide of Reveal.getSlides()) {
    const {h, v} = Reveal.getIndices(slide);
    Reveal.slide(h, v);
    const all = [...slide.querySelectorAll("*:not(mjx-assistive-mml, mjx-assistive-mml *)")];
    const boxes = all.map((e) => e.getBoundingClientRect()).filter((b) => b.width && b.height);
    const frame = slide.getBoundingClientRect(), scale = frame.width / 960;
    const image = slide.querySelector("img");
    found.push({
      place: `${h}/${v}`,
      title: slide.querySelector("h1, h2").textContent,
      right: Math.max(...boxes.map((b) => b.right - frame.left)) / scale,
      bottom: Math.max(...boxes.map((b) => b.bottom - frame.top)) / scale,
      picture: image && image.getBoundingClientRect().height / scale,
    });
  }
  return found;
}"""


@pytest.fixture(scope="module")
def decks(tmp_path_factory):
    reason = "reveal.js is not installed: pip install -e '.[teach]'"
    pytest.importorskip("sphinx_revealjs", reason=reason)
    folder = tmp_path_factory.mktemp("slides")
    slides.main([], folder)
    return folder


def open_deck(browser, file):
    page = browser.new_page(viewport=SLIDE)
    page.set_default_timeout(PATIENCE)
    found = listen(page, f"{file.parent.as_uri()}/")
    page.goto(file.as_uri(), wait_until="commit")
    page.wait_for_function("window.Reveal && Reveal.isReady() && window.MathJax?.startup?.promise")
    return page, found


@pytest.mark.parametrize("part", ["i", "ii", "iii", "iv", "v", "vi", "vii"])
def test_every_slide(browser, decks, part):
    """It fits, its math is set and its pictures have words; nothing is asked of other machines."""
    page, found = open_deck(browser, decks / f"part-{part}.html")
    page.evaluate(SCRIPT)
    found += page.evaluate("inspection.math()") + page.evaluate("inspection.pictures()")
    extents = page.evaluate(EXTENT)
    for slide in extents:
        if slide["right"] > 965 or slide["bottom"] > 710:
            found.append(f"does not fit: {slide}")
        if slide["picture"] is not None and slide["picture"] < 240:
            found.append(f"a small picture: {slide}")
    assert not found, "\n".join(found)
    assert len(extents) > 20
    assert part == "vii" or page.locator("mjx-container").count() > 20
    page.close()


def test_keys_lead_through_all_slides(browser, decks):
    page, _ = open_deck(browser, decks / "part-vi.html")
    for _ in range(page.evaluate("Reveal.getTotalSlides()") - 1):
        assert not page.evaluate("Reveal.isLastSlide()")
        page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.isLastSlide()")
    assert page.locator("section.present h2").last.text_content() == "Exercises"
    page.close()
