"""The page "Try it in the page": its definitions are those of the package, and Pyodide's files are
taken only with their hashes."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from layernorm import functional as F

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "try-it.md").read_text(encoding="utf-8")
CELLS = re.findall(r"^```\{try-it\}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SHAPES = [(2, 4, 3), (7, 2), (3, 6, 1), (5, 12, 17), (1, 2, 13), (2, 30, 3, 5), (13, 1022)]
NAMES = ["layer_norm", "rms_norm", "batch_norm", "instance_norm", "group_norm"]
CASES = [  # the package refuses instance normalization of a single position, as torch does
    (name, shape)
    for name in NAMES
    for shape in SHAPES
    if name != "instance_norm" or np.prod(shape[2:]) > 1
]


@pytest.fixture(scope="module")
def extension():
    spec = importlib.util.spec_from_file_location("try_it", ROOT / "book" / "_ext" / "try_it.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    """The names that the page's cells define."""
    namespace = {}
    for cell in CELLS:
        exec(cell, namespace)
    return SimpleNamespace(**namespace)


def by_package(name, a, gain, bias, **options):
    """The package's result for the same arguments; gain and bias with the shapes of the page's."""
    if name in ("layer_norm", "rms_norm"):
        parameters = (gain,) if name == "rms_norm" else (gain, bias)
        return getattr(F, name)(a, a.shape[1:], *parameters, **options)
    if name == "group_norm":
        return F.group_norm(a, 2, gain, bias, **options)
    training = {"batch_norm": {"training": True}, "instance_norm": {}}[name]
    return getattr(F, name)(a, None, None, gain, bias, **training, **options)


@pytest.mark.parametrize("eps", [None, 0.3])
@pytest.mark.parametrize(("name", "shape"), CASES, ids=str)
def test_a_definition_of_the_page_is_that_of_the_package(name, shape, eps, page):
    torch.manual_seed(0)
    a = 0.03 + 0.01 * torch.randn(shape, dtype=torch.float64)  # so small that eps counts
    of_units = name in ("layer_norm", "rms_norm")
    gain, bias = torch.randn(2, *(shape[1:] if of_units else shape[1:2]), dtype=torch.float64)
    options = {} if eps is None else {"eps": eps}
    groups = (2,) if name == "group_norm" else ()
    parameters = (gain,) if name == "rms_norm" else (gain, bias)
    definition = getattr(page, name)
    ours = definition(a.numpy(), *groups, *(p.numpy() for p in parameters), **options)
    expected = by_package(name, a, gain, bias, **options).numpy()
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)
    plain = definition(a.numpy(), *groups, **options)
    np.testing.assert_allclose(plain, by_package(name, a, None, None, **options), rtol=0, atol=1e-6)


def test_every_cell_prints_and_fits_its_column(extension):
    outputs, failed = extension.run(CELLS)
    assert not failed
    assert all(outputs)
    assert max(len(line) for cell in CELLS for line in cell.splitlines()) <= 78


def test_the_last_output_is_that_of_the_cell_that_raised(extension):
    outputs, failed = extension.run(["x = 1\nprint(x)", "print(x + 1)\nx / 0", "print('no')"])
    assert failed
    assert outputs[0] == "1\n"
    assert outputs[1:] == [
        '2\nTraceback (most recent call last):\n  File "cell 2", line 2, in <module>\n'
        "ZeroDivisionError: division by zero\n"
    ]
    assert "SyntaxError" in extension.run(["print(1)\n)"])[0][0]
    assert extension.run(["raise SystemExit(3)"])[1]


@pytest.fixture
def made_up(extension, monkeypatch, tmp_path):
    """Short files in place of Pyodide's, a folder with them, and their content by name."""
    files = {name: name.encode() for name in extension.FILES}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(extension, "FILES", hashes)
    folder = tmp_path / "made up"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder, files


def build(tmp_path):
    return SimpleNamespace(outdir=tmp_path / "html", builder=SimpleNamespace(format="html"))


def test_files_of_the_first_source_that_has_them_are_taken(extension, made_up, tmp_path):
    folder, files = made_up
    missing = tmp_path / "none"
    sources = {"a": lambda: extension.in_folder(missing), "b": lambda: extension.in_folder(folder)}
    found, [wrong] = extension.obtained(sources)
    assert found == files
    assert wrong.startswith("a: ")
    assert str(missing) in wrong
    assert "No such file" in wrong


def test_a_file_with_another_hash_is_refused(extension, made_up, monkeypatch, tmp_path, capsys):
    folder, _ = made_up
    (folder / "pyodide.asm.wasm").write_bytes(b"another")
    monkeypatch.setenv("LAYERNORM_PYODIDE", str(folder))
    app, config = build(tmp_path), SimpleNamespace()
    extension.prepare(app, config)
    assert not config.try_it_live
    told = capsys.readouterr().err
    assert "No Run buttons" in told
    assert "pyodide.asm.wasm has the SHA-256" in told
    extension.copy(app, None)
    assert not (app.outdir / "_static" / "pyodide").exists()


def test_what_the_network_gave_is_kept(extension, made_up, monkeypatch, tmp_path, capsys):
    folder, files = made_up
    monkeypatch.setattr(extension, "ADDRESS", f"{folder.as_uri()}/")
    monkeypatch.delenv("LAYERNORM_PYODIDE", raising=False)
    app, config = build(tmp_path), SimpleNamespace()
    extension.prepare(app, config)
    assert not config.try_it_live, "fetched unasked"
    assert "No such file" in capsys.readouterr().err
    monkeypatch.setenv("LAYERNORM_PYODIDE", "fetch")
    extension.prepare(app, config)
    assert config.try_it_live
    assert app.pyodide == files
    monkeypatch.delenv("LAYERNORM_PYODIDE")
    monkeypatch.setattr(extension, "from_address", lambda: pytest.fail("fetched a second time"))
    extension.prepare(app, config)
    assert config.try_it_live
    extension.copy(app, None)
    copied = app.outdir / "_static" / "pyodide"
    lock = json.loads((copied / "pyodide-lock.json").read_text())
    assert list(lock["packages"]) == ["numpy"]
    assert lock["packages"]["numpy"]["sha256"] == extension.FILES[extension.NUMPY]
    assert {p.name for p in copied.iterdir()} == {*files, "pyodide-lock.json"}
    assert capsys.readouterr().err == ""


def test_a_download_comes_from_the_address(extension, made_up, monkeypatch):
    folder, files = made_up
    monkeypatch.setattr(extension, "ADDRESS", f"{folder.as_uri()}/")
    assert extension.from_address() == files


def test_the_script_is_on_pages_with_cells_alone(extension):
    from docutils import nodes

    asked = []
    app = SimpleNamespace(
        config=SimpleNamespace(try_it_live=True),
        pyodide={"a": bytes(3_600_000)},
        add_css_file=asked.append,
        add_js_file=lambda name, **attributes: asked.append((name, attributes)),
    )
    extension.add_files(app, "other", "page.html", {}, nodes.container("", classes=["cell"]))
    extension.add_files(app, "search", "search.html", {}, None)
    assert asked == []
    cells = nodes.container("", nodes.container("", classes=["cell", "try-it"]))
    extension.add_files(app, "page", "page.html", {}, cells)
    assert asked == ["try-it.css", ("try-it.js", {"data-size": "4 MB"})]
    app.config.try_it_live = False
    extension.add_files(app, "page", "page.html", {}, cells)
    assert asked[2:] == ["try-it.css"]
