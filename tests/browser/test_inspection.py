"""The inspection sees what it is there to see: a sound page passes, each broken copy is caught."""

import shutil

import pytest
from browser.inspection import problems

pytestmark = pytest.mark.browser

PAGE = "book/index.html"
ARTICLE = '<article class="bd-article">'


@pytest.fixture
def copy(book, tmp_path):
    """The book's first page alone in a folder, with all that it loads."""
    (tmp_path / "book").mkdir()
    shutil.copy(book / PAGE, tmp_path / PAGE)
    for shared in ("_static", "_images", "searchindex.js"):
        if (book / shared).exists():
            (tmp_path / shared).symlink_to(book / shared)
    return tmp_path


def change(folder, old, new):
    page = folder / PAGE
    text = page.read_text(encoding="utf-8")
    assert old in text, f"the page has no {old!r}"
    page.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_copy_itself_is_sound(browser, copy):
    assert problems(browser, f"{copy.as_uri()}/", PAGE) == []


PICTURE = '<img src="../_static/logo.svg"'
BREAKS = {
    "no alt text": (f"<p>{PICTURE}></p>", "picture without alt text"),
    "empty alt text": (f'<p>{PICTURE} alt=""></p>', "picture without alt text"),
    "a file name": (f'<p>{PICTURE} alt="what the paper shows.png"></p>', "alt text is a file name"),
    "one word": (f'<p>{PICTURE} alt="figure"></p>', "alt text says too little"),
    "an undescribed drawing": ('<svg width="9" height="9"></svg>', "neither described nor hidden"),
    "a missing picture": ('<img src="no.png" alt="five cases and six units">', "could not load"),
    "a remote script": (
        '<script src="https://cdn.example.org/x.js"></script>',
        "asks for https://",
    ),
    "a remote picture": (
        '<img src="https://example.org/x.png" alt="five cases and their six units">',
        "asks for https://example.org/x.png",
    ),
    "a remote font": (
        '<style>@font-face{font-family:f;src:url("https://example.org/f.woff2")}'
        "p{font-family:f}</style>",
        "asks for https://example.org/f.woff2",
    ),
    "a remote address looked up": (
        '<link rel="preconnect" href="https://fonts.example.org">',
        "prepares to ask https://fonts.example.org",
    ),
    "a later request": (
        "<script>setTimeout(() => fetch('https://example.org/late').catch(() => 0), 50)</script>",
        "asks for https://example.org/late",
    ),
    "a script that fails": ("<script>undefinedFunction()</script>", "script error"),
    "a complaint": ("<script>console.error('so it is')</script>", "in the console: so it is"),
    "an unknown macro": (r'<span class="math">\(\nosuchmacro{1}\)</span>', "math error"),
    "an error in the math": (r'<span class="math">\(x^1^2\)</span>', "math error"),
    "unfinished math": (r'<span class="math">\(\frac{1\)</span>', "math not rendered"),
    "math left alone": ('<span class="math">σ over H</span>', "math not rendered"),
    "raw TeX": (r"<p>where \frac{a}{\sigma} is</p>", "raw markup"),
    "raw dollars": (r"<p>where $\mu_i$ is</p>", "raw markup"),
    "a raw role": ("<p>see {ref}`layer`</p>", "raw markup"),
    "a wide table": (
        "<table><tr>" + "<td>a_long_word_that_cannot_break</td>" * 12 + "</tr></table>",
        "px wide in a window of 360 px",
    ),
    "something cut off": (
        '<div style="overflow:hidden"><p style="width:2000px">cut</p></div>',
        "cut off in a window",
    ),
    "cut off to the left": (
        '<div style="overflow:auto"><p style="margin-left:-60px">cut</p></div>',
        "cut off in a window",
    ),
    "pale text": ('<p style="color:#bbb;background:#fff">pale</p>', "light theme: contrast"),
    "faded text": ('<p style="opacity:0.4">faded</p>', "light theme: contrast"),
    "text only for the light": ('<p style="color:#333">dark on dark</p>', "dark theme: contrast"),
    "a button to another repository": (
        f"<a href=https://colab.research.google.com/github/{'other/book'}/blob/main/a.ipynb>C</a>",
        "a button leads elsewhere",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_copy_is_caught(name, browser, copy):
    broken, expected = BREAKS[name]
    change(copy, ARTICLE, ARTICLE + broken)
    found = problems(browser, f"{copy.as_uri()}/", PAGE)
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (" alt=", " data-was-alt=", "picture without alt text"),
        ("/edit/main/book/index.md", "/edit/main/index.md", "no button leads to"),
        ("../_static/mathjax/tex-chtml.js", "../_static/no.js", "MathJax did not start"),
    ],
)
def test_a_page_with_a_part_taken_away_is_caught(old, new, expected, browser, copy):
    change(copy, old, new)
    found = problems(browser, f"{copy.as_uri()}/", PAGE)
    assert any(expected in problem for problem in found), found
