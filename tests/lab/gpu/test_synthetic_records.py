"""Records of a GPU that a test made up go everywhere where measured ones will: into the published
form, tables, claims, the cells of chapters 11 to 13, the page that says how to run, built.

They carry the name of this test's GPU, and lie in a folder of the test alone."""

import importlib.util
import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from lab.benchmarks.benching import ROOT

from layernorm.lab import claims, records
from layernorm.lab.benchmarks import elsewhere, on_gpu, speeds
from layernorm.lab.benchmarks.measure.recording import record_of
from layernorm.lab.benchmarks.training.subjects import SUBJECTS
from layernorm.lab.gpu.steps import STEPS
from layernorm.lab.records import published

GPU = "Synthetic GPU, made up by a test"
# Steps, as far as tables need them.
SOME = ("layer", "recurrent", "updates", "replayed", "residual", "choice", "layers")
CLAIMS = ("slower-per-update/gpu", "no-significant-cost-per-step/recurrent_gpu",
          "moments-slower-than-products/gpu")  # fmt: skip


def made_up(case, name, draw):
    """The record of an implementation; norms slow an update down a little."""
    blank = case.blank(name)
    slow = 1.5 if case.benchmark == "training" and case.method(name) != "none" else 1.0
    seconds = 1e-5 * slow * (1 + 0.01 * draw.random())
    ratio = {"ratio": slow, "ratio_low": 0.99 * slow, "ratio_high": 1.01 * slow}
    norm = case.benchmark != "training" and case.benchmark != "recurrent"
    roofed = {"traffic": 10**7, "bandwidth": 9e11, "roof": 1e12} if norm else {}
    row = replace(
        blank, seconds=seconds, p20=seconds, p80=seconds, host=4e-6, error=0.5, **ratio, **roofed,
        options={**blank.options, "machine": GPU},
    )  # fmt: skip
    made = record_of(row, case.profile, case.depends_on(name))
    return replace(made, environment={**made.environment, "gpus": [GPU]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The published form of the made-up records."""
    place, draw = tmp_path_factory.mktemp("synthetic"), random.Random(0)
    for step in SOME:
        plan = STEPS[step]("cuda")
        for case in plan if step in SOME[:3] else plan[:: max(1, len(plan) // 6)]:
            for name in case.implementations:
                records.save(made_up(case, name, draw), place / "runs")
    published.publish([place / "runs"], folder=place / "published")
    return place / "published"


@pytest.fixture
def synthetic(folder, monkeypatch):
    monkeypatch.setattr("layernorm.lab.records.published.published_folder", lambda: folder)
    monkeypatch.setattr(records, "stale", lambda record: "")


def test_without_them_others_are_shown_and_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("layernorm.lab.records.published.published_folder", lambda: tmp_path)
    assert on_gpu.devices() == on_gpu.by_shape().lines == []
    assert on_gpu.norms().lines == elsewhere.published().lines
    assert on_gpu.layers().lines == elsewhere.recurrent().lines
    assert {claims.decide(id).verdict for id in CLAIMS} == {"not yet tested"}
    assert extension().shown() == "are not measured on a GPU yet"


def test_tables_have_a_place_for_every_kind_of_result(synthetic):
    assert on_gpu.devices() == [GPU]
    norms, layers = on_gpu.norms(), on_gpu.layers()
    assert norms.title.startswith(f"measured by us; {GPU}")
    told = norms.frame()
    assert set(told["operation"]) == {"layer", "layer_graph", "rms", "residual"}
    assert set(told["of a copy's speed"]) == {"90% 90% 90%"}
    assert set(told["µs, host"]) == {"4"}
    assert {("LSTM", "cuDNN"), ("GRU", "fused")} <= set(layers.frame("layer", "by").index)
    assert "published by others" not in norms.text() + layers.text()
    each = on_gpu.by_shape()
    assert {len(line) for line in each.lines} == {len(each.head)}
    assert {line[-2] for line in each.lines} == {"90%"}
    assert {line[-1] for line in each.lines} == {"1.00 [0.99, 1.01]"}


def test_claims_are_decided(synthetic):
    found = {id: claims.decide(id).verdict for id in CLAIMS}
    assert found.pop("slower-per-update/gpu") != "not yet tested"
    assert found == {
        "no-significant-cost-per-step/recurrent_gpu": "opposite here",
        "moments-slower-than-products/gpu": "supported here",
    }


def test_the_file_of_speeds_is_written_from_them(synthetic):
    with records.published_only():
        entries = speeds.entries(records.runs())
    assert {entry["device"] for entry in entries} == {GPU}
    layers = {"lstm", "gru", "lstm_persistent", "gru_persistent"}
    assert {entry["operation"] for entry in entries} == {"layer_norm", "rms_norm", *layers}


CELL = re.compile(r"```\{code-cell\} ipython3\n(.*?)```", re.DOTALL)


def cells(chapter, *wanted):
    """The code of a chapter's cells that have one of these texts in them."""
    (file,) = (ROOT / "notebooks").glob(f"{chapter}-*.md")
    found = [
        re.sub(r"\A:tags:[^\n]*\n\n?", "", code)
        for code in CELL.findall(file.read_text(encoding="utf-8"))
    ]
    return [code for code in found if any(text in code for text in wanted)]


@pytest.mark.parametrize("chapter", ["11", "12", "13"])
def test_the_cells_of_the_chapters_show_them(chapter, synthetic, capsys):
    (cell,) = cells(chapter, "on_gpu.")
    *lines, last = cell.strip().splitlines()
    names = {}
    exec("\n".join(lines), names)
    table = eval(last, names)
    assert f"measured by us; {GPU}" in capsys.readouterr().out
    assert len(table) > 3


def test_chapter_12_shows_the_updates(synthetic, capsys):
    names = {}
    exec("from layernorm.lab import records\nfrom layernorm.lab.benchmarks import training", names)
    for code in cells("12", "def origin", "def recorded"):
        exec(code, names)
    (shown,) = cells("12", 'recorded("cuda"')
    table = eval(shown.strip(), names)
    assert capsys.readouterr().out.startswith(f"{GPU}, torch ")
    assert set(SUBJECTS["mlp"]) == set(table.index)
    assert table.loc["layer/torch"].str.startswith("1.50 [").all()


def extension():
    spec = importlib.util.spec_from_file_location("on_gpu", ROOT / "book" / "_ext" / "on_gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(folder, monkeypatch):
    """The text of the page that says how to run, by Sphinx, as the book builds it."""
    from sphinx.application import Sphinx

    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    source = folder / "source"
    source.mkdir()
    text = (ROOT / "book" / "how-to-run.md").read_text(encoding="utf-8")
    begin, end = text.index("## With a GPU"), text.index("## The fused recurrent layers")
    (source / "index.md").write_text(f"# How to run\n\n{text[begin:end]}", encoding="utf-8")
    settings = {"extensions": ["myst_parser", "on_gpu"]}
    app = Sphinx(source, None, folder / "html", folder / "read", "html", settings, status=None,
                 warning=None, parallel=0)  # fmt: skip
    app.build()
    page = (folder / "html" / "index.html").read_text(encoding="utf-8")
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_the_built_page_says_so(synthetic, tmp_path, monkeypatch):
    pytest.importorskip("myst_parser")
    assert f"their speeds are measured on {GPU}. Until" in built(tmp_path, monkeypatch)


def test_half_a_megabyte_is_enough_for_all_that_is_planned(folder):
    """Bytes of a row in the published form, times the rows of the largest file that is planned."""
    size = max(
        file.stat().st_size / len(published.values(file.read_bytes()))
        for file in folder.iterdir()
        if len(published.values(file.read_bytes())) > 20
    )
    rows = Counter()
    for step in STEPS.values():
        for case in step("cuda"):
            rows[case.benchmark, case.profile] += len(case.implementations)
    (largest, count), *_ = rows.most_common(1)
    assert size * count < published.LIMIT, (largest, count, size)
