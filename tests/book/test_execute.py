"""Executing chapters: what runs, what is kept, what is said when something fails."""

import argparse
import os

import execute
import nbformat
import pairs
import pytest

HEAD = f"""---
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A chapter

```{{code-cell}} ipython3
:tags: [remove-cell]

{pairs.colab_cell()}
```

A sentence.
"""


def cell(source: str, tags: str = "") -> str:
    return f"\n```{{code-cell}} ipython3\n{f':tags: [{tags}]' if tags else ''}\n\n{source}\n```\n"


def chapter(folder, name: str, *sources: str) -> None:
    (folder / f"{name}.md").write_text(HEAD + "".join(map(cell, sources)))


def run(folder, *names: str, **chosen: bool) -> None:
    options = {"force": False, "check": False, "tidy": False} | chosen
    execute.run(argparse.Namespace(folder=folder, names=list(names), at_a_time=2, **options))


def test_a_failure_is_named_and_the_others_are_kept(tmp_path):
    chapter(tmp_path, "01-good", "print(6 * 7)")
    chapter(tmp_path, "02-bad", "a = 1", "b = a / 0", "c = 3")
    with pytest.raises(execute.Failure) as failure:
        run(tmp_path)
    message = str(failure.value)
    for part in ("02-bad.md: code cell 3 failed", "b = a / 0", "ZeroDivisionError"):
        assert part in message
    assert "01-good" not in message
    assert not (tmp_path / "02-bad.ipynb").exists()
    stored = nbformat.read(tmp_path / "01-good.ipynb", as_version=4)
    assert stored.cells[-1].outputs[0].text == "42\n"


@pytest.mark.parametrize(
    ("cells", "failed"),
    [
        (["1 +"], "cell 2 failed.*SyntaxError"),
        (["import os", "os._exit(3)"], r"cell 3 failed.*os\._exit"),
    ],
)
def test_a_syntax_error_and_a_kernel_that_dies_are_named_too(tmp_path, cells, failed):
    chapter(tmp_path, "01-bad", *cells)
    with pytest.raises(execute.Failure, match=rf"(?s)01-bad.md: code {failed}"):
        run(tmp_path)


def test_current_chapters_are_left_alone_and_executing_again_changes_no_byte(tmp_path, capsys):
    chapter(tmp_path, "01-a", "import sys\nprint(sys.version_info.major)", "1 + 1")
    run(tmp_path)
    path = tmp_path / "01-a.ipynb"
    before, changed = path.read_bytes(), path.stat().st_mtime_ns
    assert b"2026-" not in before, "a time of execution is stored"
    assert b'"version"' not in before, "Python's exact version is stored"
    run(tmp_path)
    assert path.stat().st_mtime_ns == changed
    assert "0 of 1 notebooks executed" in capsys.readouterr().out
    run(tmp_path, force=True)
    assert path.read_bytes() == before
    assert "1 of 1 notebooks executed" in capsys.readouterr().out


def test_prose_alone_needs_no_execution_but_code_does(tmp_path, capsys):
    text, path = tmp_path / "01-a.md", tmp_path / "01-a.ipynb"
    chapter(tmp_path, "01-a", "import time\ntime.time_ns()")
    run(tmp_path)
    [stamp] = nbformat.read(path, as_version=4).cells[-1].outputs
    text.write_text(text.read_text().replace("A sentence.", "A better sentence."))
    run(tmp_path)
    stored = nbformat.read(path, as_version=4)
    assert stored.cells[-1].outputs == [stamp]
    assert "A better sentence." in [c.source for c in stored.cells]
    assert "0 of 1" in capsys.readouterr().out
    run(tmp_path, check=True)
    text.write_text(text.read_text().replace("time.time_ns()", "time.time_ns() + 1"))
    with pytest.raises(execute.Failure, match="01-a: code, definitions changed"):
        run(tmp_path, check=True)
    run(tmp_path)
    assert nbformat.read(path, as_version=4).cells[-1].outputs != [stamp]


def test_an_edited_notebook_is_not_overwritten(tmp_path):
    chapter(tmp_path, "01-a", "1 + 1")
    run(tmp_path)
    path = tmp_path / "01-a.ipynb"
    edited = path.read_text().replace("A sentence.", "An edit.")
    path.write_text(edited)
    with pytest.raises(execute.Failure, match="was edited and its text was not"):
        run(tmp_path)
    assert path.read_text() == edited


def test_chapters_run_on_one_thread_without_local_runs_unless_they_run_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path))
    show = "from os import environ, listdir\n"
    show += "print(environ['OMP_NUM_THREADS'], listdir(environ['LAYERNORM_RUNS']))"
    chapter(tmp_path, "01-beside", show)
    chapter(tmp_path, "02-alone", show)
    text = tmp_path / "02-alone.md"
    text.write_text(text.read_text().replace("---\n", "---\nrun_alone: true\n", 1))
    run(tmp_path)
    outputs = [
        nbformat.read(tmp_path / f"{name}.ipynb", as_version=4).cells[-1].outputs[0].text
        for name in ("01-beside", "02-alone")
    ]
    assert outputs == ["1 []\n", "2 []\n"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    chapter(tmp_path, "01-a", "1 + 1")
    run(tmp_path)
    path = tmp_path / "01-a.ipynb"
    before = path.read_bytes()
    chapter(tmp_path, "01-a", "1 + 2")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert path.read_bytes() == before


def test_unknown_names_and_missing_kernels_are_refused(tmp_path):
    chapter(tmp_path, "01-a", "1 + 1")
    with pytest.raises(SystemExit, match="starts with '07'; there are: 01-a"):
        run(tmp_path, "07")
    (tmp_path / "01-a.md").write_text("# No front matter\n")
    with pytest.raises(ValueError, match="must name a kernelspec"):
        run(tmp_path)


def test_tidying_gives_the_text_that_jupyterlab_saves(tmp_path):
    wide = f"print('{'a' * 33}', '{'b' * 33}')"
    assert len(wide) == pairs.MOST_COLUMNS + 1
    chapter(tmp_path, "01-a", "x = {'a':1}", "%matplotlib inline\nx;", wide)
    text = tmp_path / "01-a.md"
    text.write_text(
        text.read_text() + "\n```{code-cell}\n:mystnb:\n:  figure: {caption: c}\n\n1\n```\n"
    )
    assert pairs.as_text(pairs.read_text(text)) != text.read_text()
    run(tmp_path, tidy=True)
    tidied = text.read_text()
    assert pairs.as_text(pairs.read_text(text)) == tidied
    for part in (
        'x = {"a": 1}',
        "%matplotlib inline\nx;",
        "mystnb:\n  figure:",
        pairs.colab_cell(),
        f'print(\n    "{"a" * 33}", ',
    ):
        assert part in tidied
    run(tmp_path, tidy=True)
    assert text.read_text() == tidied
