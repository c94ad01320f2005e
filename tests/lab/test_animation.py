"""The animation: its grid holds every frame, and its CSS shows each of them once, in order."""

import io
import re
import tomllib
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import layernorm
from layernorm.lab import animation as module
from layernorm.lab.animation import GAP, MIME, BookRenderer, animation, corner, drawn, page

FRAMES = np.random.default_rng(0).random((5, 6, 9))
ALT = 'Five <noisy> "pictures"'


def made(**changes):
    return animation(FRAMES, **{"alt": ALT, "columns": 3, **changes})


def decoded(png):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def html_of(shown):
    data, _ = shown._repr_mimebundle_()
    return page(data[MIME])


def test_the_contact_sheet_holds_every_frame_in_its_place():
    sheet = decoded(made().png())
    assert sheet.shape == (2 * 6 + GAP, 3 * 9 + 2 * GAP, 3)
    seen = np.zeros(sheet.shape[:2], bool)
    for place, frame in enumerate(FRAMES):
        y, x = corner(place, 3, 9, 6)
        there = sheet[y : y + 6, x : x + 9]
        assert (there == np.round(255 * frame).astype(np.uint8)[..., None]).all()
        assert not seen[y : y + 6, x : x + 9].any()
        seen[y : y + 6, x : x + 9] = True
    assert (sheet[~seen] == 255).all()


def test_the_css_moves_to_each_frame_once_and_holds_the_last():
    text = html_of(made(seconds=0.5))
    assert "4s step-end infinite" in text
    moves = re.findall(r"([\d.]+)% \{ transform: translate\((-?\d+)px, (-?\d+)px\); \}", text)
    assert [float(percent) for percent, _, _ in moves] == [0.0, 12.5, 25.0, 37.5, 50.0]
    for place, (_, x, y) in enumerate(moves):
        assert (-int(y), -int(x)) == corner(place, 3, 9, 6)
    assert "width: 9px; height: 6px;" in text


def test_a_wish_for_reduced_motion_a_printer_and_the_box_show_the_whole_sheet():
    text = html_of(made())
    for where in (r"@media \(prefers-reduced-motion: reduce\) \{ ", r"@media print \{ ", ""):
        box = r" input:checked ~" if not where else ""
        rule = rf"{where}#film-\w+{box} \.window \{{ width: auto !important; "
        assert re.search(rule, text), where
    assert text.count("animation: none; max-width: 100%") == 3


def test_the_page_needs_no_network_and_no_script_and_has_the_words():
    text = html_of(made())
    assert not re.search(r"https?:|<script|url\(|@import|\bon\w+=", text)
    assert 'alt="Five &lt;noisy&gt; &quot;pictures&quot;"' in text
    (picture,) = re.findall(r"base64,([^\"]+)", text)
    assert (decoded(b64decode(picture)) == made().sheet).all()


def test_two_animations_on_a_page_do_not_meddle_with_each_other():
    names = [re.search(r'id="(film-\w+)"', html_of(made(columns=k)))[1] for k in (1, 2)]
    assert len(set(names)) == 2
    assert html_of(made()) == html_of(made())


def test_a_notebook_stores_a_picture_with_its_words_and_no_html():
    data, metadata = made()._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", MIME}
    assert metadata["image/png"]["alt"] == ALT
    assert (decoded(b64decode(data["image/png"])) == made().sheet).all()


def test_the_book_plays_animations_and_nothing_else():
    text = (Path(layernorm.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    plugins = tomllib.loads(text)["project"]["entry-points"]["myst_nb.mime_renderers"]
    assert plugins["animation"] == f"{module.__name__}:BookRenderer"
    content = made()._repr_mimebundle_()[0][MIME]
    (node,) = BookRenderer.handle_mime(
        None, SimpleNamespace(mime_type=MIME, content=content), False
    )
    assert node.astext() == page(content)
    other = SimpleNamespace(mime_type="image/png", content="")
    assert BookRenderer.handle_mime(None, other, False) is None


def test_colors_bytes_and_transparency():
    red = np.zeros((2, 2, 4))
    red[..., 0] = 1.0
    red[0, :, 3] = 1.0
    sheet = animation([red], alt="red over nothing").sheet
    assert (sheet[0] == [255, 0, 0]).all()
    assert (sheet[1] == 255).all()
    grey = np.full((2, 2), 7, np.uint8)
    assert (animation([grey], alt="grey").sheet == 7).all()


def test_a_matplotlib_figure_becomes_a_frame():
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(2, 1), dpi=50, facecolor="blue")
    frame = drawn(figure)
    assert frame.shape == (50, 100, 3)
    assert (frame == [0, 0, 255]).all()
    assert not plt.fignum_exists(figure.number)


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ([], {}, "at least one picture, got none"),
        ([np.ones((2, 2)), np.ones((2, 3))], {}, "one size, got 2 x 2, 2 x 3"),
        ([np.ones(3)], {}, r"got \(3,\) for frame 0"),
        ([np.ones((2, 2, 2))], {}, r"got \(2, 2, 2\) for frame 0"),
        ([np.full((2, 2), 2.0)], {}, "from 2.0 to 2.0: divide them by the largest one"),
        ([np.full((2, 2), np.nan)], {}, "numbers from 0 to 1; frame 0"),
        ([np.ones((2, 2))], {"alt": " "}, "alt must say what the animation shows"),
        ([np.ones((2, 2))], {"columns": 0}, "columns must be a whole number of at least 1, got 0"),
        ([np.ones((2, 2))], {"seconds": 0}, "seconds must lie above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused(frames, options, message):
    with pytest.raises(ValueError, match=message):
        animation(frames, **{"alt": "x", **options})
