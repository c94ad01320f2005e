"""The book's own Sphinx extensions: docstrings, stale records and shown claims."""

import json
import re
from dataclasses import replace
from importlib import import_module as extension
from pathlib import Path
from types import SimpleNamespace

import pytest

from layernorm.lab import claims, records
from layernorm.lab.claims import page
from layernorm.lab.claims.verdicts import Stored

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a `gain` and ``bias``", "a ``gain`` and ``bias``"),
        (r"the mean $\mu_i$ of unit $i$", r"the mean :math:`\mu_i` of unit :math:`i`"),
        ("|v| is one norm", r"\|v\| is one norm"),
        (r"(\*batch, H) and (*batch, *normalized)", r"(\*batch, H) and (\*batch, \*normalized)"),
        ("*every* case, **once**", "*every* case, **once**"),
        ("redraw_ and num_groups", r"redraw\_ and num_groups"),
        (":class:`Claim`, `a` * 2", r":class:`Claim`, ``a`` \* 2"),
        ("$$ a^2\n   + b $$", ".. math::\n\n   a^2\n      + b"),
        ("Equation.\n\n    y = (*x)|_", "Equation.\n\n.. code-block:: text\n\n    y = (*x)|_"),
        ("Use:\n\n    from a import b", "Use:\n\n.. code-block:: python\n\n    from a import b"),
        ("Use::\n\n    from a import b", "Use::\n\n    from a import b"),
        (">>> f(`x`)\n|v|", ">>> f(`x`)\n|v|"),
        ("Args:\n    x: (*batch)\n    w: `v`", "Args:\n    x: (\\*batch)\n    w: ``v``"),
    ],
)
def test_a_docstring_is_marked_up(written, expected):
    assert "\n".join(extension("docstrings").marked_up(written.split("\n"))) == expected


def test_signatures_show_types_without_their_limits():
    written = (
        "(*, rate: ~typing.Annotated[float, ~annotated_types.Gt(gt=0)] = 0.1, "
        "sizes: tuple[Annotated[int, Ge(ge=1), Le(le=9)], ...] = (3, 4), "
        "few: Annotated[dict[str, int], F(of=[1, 2])] | None = None)"
    )
    assert extension("docstrings").unannotated(written) == (
        "(*, rate: float = 0.1, sizes: tuple[int, ...] = (3, 4), few: dict[str, int] | None = None)"
    )
    assert extension("docstrings").unannotated("(x: int) -> int") == "(x: int) -> int"


@pytest.fixture
def staleness(monkeypatch):
    """The extension, with runs of "drift" that are stale and runs of "batch_size" that are not."""
    module = extension("staleness")
    told = {"drift": "2 of 5 runs are old.", "batch_size": ""}
    monkeypatch.setattr(module, "names", lambda: [f"{name}-book" for name in told])
    monkeypatch.setattr(records, "staleness_banner", told.get)
    return module


@pytest.fixture
def app(tmp_path):
    """A book in this folder."""
    env = SimpleNamespace(staleness={}, doc2path=lambda name: str(tmp_path / f"{name}.ipynb"))
    on = {}

    def connect(event, listener, **_):
        on[event] = listener

    return SimpleNamespace(env=env, on=on, connect=connect, add_builder=lambda *_, **__: None)


def chapter(code):
    """A title and a cell."""
    title, cell = {"cell_type": "markdown", "source": ["# Title"]}, {"cell_type": "code"}
    return json.dumps({"cells": [title, {**cell, "source": [code]}], "metadata": {}})


def read(module, app, code):
    """A chapter with this code, as the extension leaves it."""
    text = chapter(code)
    Path(app.env.doc2path("chapter")).write_text(text, encoding="utf-8")
    return shown_as(module, app, text)


def shown_as(module, app, text):
    """The text of a page, as the extension leaves it."""
    module.setup(app)
    source = [text]
    app.on["source-read"](app, "chapter", source)
    return source[0]


def test_a_chapter_with_stale_records_says_so_below_its_title(staleness, app):
    text = read(staleness, app, 'records.load("drift", "book")')
    title, banner, code = json.loads(text)["cells"]
    assert title["source"] == ["# Title"]
    assert "drift: 2 of 5 runs are old." in banner["source"]
    assert code["cell_type"] == "code"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("staleness", 'records.load("batch_size", "book")'),
        ("staleness", 'drift, x = 1, {"drift": 4}  # an option'),
        ("figure_data", 'print("drifting")'),
    ],
)
def test_a_chapter_without_such_records_stays_as_it_is(name, code, request, app):
    assert read(request.getfixturevalue(name), app, code) == chapter(code)


SHOWN = {
    "11": {"packed", "compile", "recurrent"},
    "12": {"layer", "training", "workers", "sweeps"},
    "13": {"layer"},
}


def test_a_chapter_that_shows_stale_benchmarks_says_so(monkeypatch):
    module = extension("staleness")
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if shown := module.benchmarks(notebook):
            found[path.name[:2]] = shown
        monkeypatch.setattr(records, "staleness_banner", lambda name: "old." * ("bench_" in name))
        assert module.banner(notebook).count("- bench_") == len(shown)
    assert found == SHOWN


def test_a_chapter_is_read_again_when_its_records_become_stale(staleness, app, monkeypatch):
    read(staleness, app, 'records.load("drift", "book")')
    assert staleness.outdated(app, app.env, set(), set(), set()) == []
    monkeypatch.setattr(records, "staleness_banner", lambda name: "")
    assert staleness.outdated(app, app.env, set(), set(), set()) == ["chapter"]
    assert staleness.outdated(app, app.env, set(), set(), {"chapter"}) == []


def test_a_stale_run_of_ones_own_gives_no_page_a_banner(folders, app):
    config = {"experiment": "drift", "profile": "book", "arm": "a", "method": "none", "seed": 0}
    run = records.Record(config, {"final": {"nll": 1.0}})
    records.publish([records.save(run)])
    code = 'records.load("drift")'
    records.save(replace(run, digest="of other code"))
    assert read(extension("staleness"), app, code) == chapter(code)
    records.publish([folders / "runs"])
    assert "1 of 1 runs" in read(extension("staleness"), app, code)


PROVED, OPEN = claims.Finding("proved", "As computed."), claims.Finding("not yet tested")


def shown(code, *ids):
    """A notebook whose one cell shows these claims."""
    entries = [
        (claims.Claim(id, "…", ("this book",), "experiment", "03"), PROVED if id != "c" else OPEN)
        for id in ids
    ]
    html = claims.Decided(entries)._repr_html_().splitlines(keepends=True)
    output = {"output_type": "execute_result", "data": {"text/html": html, "text/plain": ["…"]}}
    stream = {"output_type": "stream", "name": "stdout", "text": ["<tr><code>no</code></tr>"]}
    cell = {"cell_type": "code", "source": [code], "outputs": [stream, output]}
    return {"cells": [{"cell_type": "markdown", "source": ["# Title"]}, cell]}


def html_of(notebook):
    return "".join(notebook["cells"][1]["outputs"][1]["data"]["text/html"])


def test_shown_claims_get_anchors_and_nothing_else_changes(app):
    module = extension("claim_anchors")
    before = html_of(shown('claims.show(chapter="03")', "a", "b/digits", "c"))
    text = json.dumps(shown('claims.show(chapter="03")', "a", "b/digits", "c"))
    after = html_of(json.loads(shown_as(module, app, text)))
    assert re.findall('<tr id="([^"]*)">', after) == ["claim-a", "claim-b/digits", "claim-c"]
    assert re.sub(' id="[^"]*"', "", after) == before


def test_other_tables_and_pages_get_none(app):
    module = extension("claim_anchors")
    notebook = shown("ledger.errata(decided)", "a")
    assert module.anchored(notebook) == shown("ledger.errata(decided)", "a")
    app.env.doc2path = "{}.md".format
    assert shown_as(module, app, "# claims.show(") == "# claims.show("


@pytest.mark.parametrize("name", [*page.PAGES.values(), "side-paths"])
def test_links_of_the_ledger_lead_to_rows_of_the_page(name):
    """The page that a claim names shows the finding, for every claim that has a check."""
    module = extension("claim_anchors")
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    tables = ["".join(t["text/html"]) for t in module.tables(module.anchored(notebook))]
    anchors = re.findall('<tr id="([^"]*)">', "".join(tables))
    assert len(anchors) == len(set(anchors))
    own = [claim for claim in claims.all() if page.page_of(claim) == name]
    assert bool(own) == bool(anchors)
    for claim in own:
        if claim.check is not None:
            (target,) = re.findall(f'{name}.html#([^"]*)"', page.links(claim, PROVED))
            assert target in anchors, f"{page} does not show {claim.id}: execute it again"


@pytest.fixture
def figure_data(monkeypatch):
    module = extension("figure_data")
    found = ["drift-book", "drift-book_tuning", "mnist-paper"]
    monkeypatch.setattr(module, "sweeps", lambda: found)
    return module


@pytest.mark.parametrize(
    ("code", "at"),
    [('records.load("drift", "book")', 2), ('report.box(e)\nrecords.load("drift", "book")', 2)],
)
def test_a_chapter_links_to_the_runs_it_names(code, at, figure_data, app):
    cells = json.loads(read(figure_data, app, code))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown"]
    links = re.findall('href="([^"]*)"', cells[at]["source"])
    assert links == ["../data/drift-book.csv", "../data/drift-book_tuning.csv"]


@pytest.mark.parametrize("code", ['x = {"drift": 4}', 'metrics = ("drift", "nll")', 'x["drift"]'])
def test_an_option_with_the_name_of_an_experiment_is_not_its_runs(code, figure_data):
    cell = {"cell_type": "code", "source": [code]}
    assert figure_data.named({"cells": [cell]}) == []


def test_below_the_box_if_there_is_one(figure_data):
    code = ("report.box(e)", 'load("drift")', "the_end")
    cells = [{"cell_type": "code", "source": [text]} for text in code]
    found = figure_data.linked({"cells": cells})["cells"]
    assert ["".join(cell["source"])[:4] for cell in found] == ["repo", "Data", "load", "the_"]


def test_a_file_of_data_holds_the_published_runs():
    module = extension("figure_data")
    assert not [name for name in module.sweeps() if name.endswith("_overfit")]
    runs = records.published.published("mixed_units", "book")
    lines = module.csv("mixed_units-book").splitlines()
    assert lines[0].startswith("arm,seed,learning_rate,update,")
    readings = sum(len(run.result["curves"]["test_nll"]["step"]) + 1 for run in runs)
    assert len(lines) == 1 + readings  # the final metrics of a run have a line of their own
    table = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    final = [row for row in table if row["update"] == "final"]
    assert len(final) == len(runs)
    shown = {(row["arm"], int(row["seed"])): float(row["mean_test_nll"]) for row in final}
    for run in runs:
        value = run.result["final"]["mean_test_nll"]
        assert shown[run.config["arm"], run.config["seed"]] == pytest.approx(value)
    assert module.csv("bench_layer-quick").count("\n") > 2


ADVICE = (ROOT / "book" / "which-normalization.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", ADVICE.split("\n## ")[1:6], ids=lambda s: s.partition("\n")[0])
def test_every_advice_rests_on_claims_that_are_there(section):
    module = extension("verdict")
    ids = re.findall("{verdict}`([^`]+)`", section)
    assert len(ids) >= 4
    for id in ids:
        verdict, page_name, at = module.shown(id)
        assert verdict == Stored().finding(claims.get(id)).verdict
        assert (ROOT / f"{page_name}.md").is_file()
        assert at == ("" if "ledger" in page_name or "yet" in verdict else f"#claim-{id}")


def test_a_verdict_of_an_unknown_claim_is_refused():
    with pytest.raises(claims.ClaimError, match="did you mean learns-online/digits"):
        extension("verdict").shown("learns-online/digit")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("<td>-0.04 [-0.055, 3e-05]</td>", "<td>-0.04 [-0.055,\N{NO-BREAK SPACE}3e-05]</td>"),
        ("<td>0 to 1, or 2</td>", "<td>0 to 1, or 2</td>"),
        ("<th>ratio [95%, t]</th>", "<th>ratio [95%, t]</th>"),
    ],
)
def test_an_interval_in_a_table_is_not_broken(written, expected, app):
    module = extension("intervals")
    assert module.whole(written) == expected
    cells = [{"cell_type": "markdown"}, {"outputs": [{"data": {"text/html": [written]}}, {}]}]
    cells = json.loads(shown_as(module, app, json.dumps({"cells": cells})))["cells"]
    assert cells[1]["outputs"][0]["data"]["text/html"] == expected


@pytest.mark.parametrize(("builder", "expected"), [("epub", "a bell"), ("html", None)])
def test_the_picture_of_an_interactive_figure_has_its_words_in_the_ebook(builder, expected, app):
    app.builder = SimpleNamespace(name=builder)
    output = {"data": {}, "metadata": {"image/png": {"alt": "a bell"}}}
    text = json.dumps({"cells": [{"metadata": {}, "outputs": [output]}]})
    (cell,) = json.loads(shown_as(extension("ebook"), app, text))["cells"]
    assert cell["metadata"].get("mystnb", {}).get("image", {}).get("alt") == expected
