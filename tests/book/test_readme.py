"""The README's Python runs as it stands there; its verdicts and times are the stored ones."""

import re
import shutil
from importlib.util import find_spec

import pairs
import pytest
from apart import python

from layernorm.lab.benchmarks import compiling, packed
from layernorm.lab.benchmarks.measure.table import number
from layernorm.lab.benchmarks.recurrent import tables
from layernorm.lab.claims import verdicts

README = (pairs.ROOT / "README.md").read_text()
EXACT = """
exact = __import__("copy").deepcopy(model).double()
print(abs(exact(x.double())[0] - here).max().item())
"""
SCRIPTS = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)


def test_its_verdicts_are_the_stored_ones():
    told = re.findall(r"^\| .* \| (.*) \| `([a-z].*)` \|$", README, re.M)
    assert len(told) > 5
    stored = verdicts.Stored().verdicts
    for words, claim in told:
        assert words.startswith(stored[claim]["verdict"]), claim


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_its_times_are_the_recorded_ones(kind):
    rows = tables.of_one_machine("recurrent", "cpu")
    chosen = {"kind": kind, "mode": "training", "huge_pages": "off"}
    [line] = re.findall(rf"^\| LayerNorm{kind.upper()} over .*", README, re.M)
    told = re.findall(r"([\d.]+) \(([\d.]+)–([\d.]+)\)", line)
    for numbers, name in zip(told, ("ours", "loop"), strict=True):
        mine = tables.select(rows, implementation=name, **chosen)
        ratios = [row.ratio for row in mine]
        assert len(ratios) == 9
        found = (tables.geometric_mean(mine), min(ratios), max(ratios))
        assert numbers == tuple(map(number, found))


def test_it_says_where_the_lstm_is_slower():
    rows = tables.of_one_machine("recurrent", "cpu")
    chosen = {"mode": "training", "huge_pages": "off", "implementation": "ours"}
    mine = tables.select(rows, kind="lstm", **chosen)
    slower = sorted((row for row in mine if row.ratio > 1), key=lambda row: row.ratio)
    words = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    pattern = (
        r"slower than `nn\.LSTM` at (\w+) of the (\w+) shapes, most of all \(([\d.]+)\) "
        r"at (\d+) steps of (\d+) sequences with (\d+) units"
    )
    [told] = re.findall(pattern, " ".join(README.split()))
    steps, sequences, _, units = slower[-1].shape
    counts = words[len(slower)], words[len(mine)]
    assert told == (*counts, number(slower[-1].ratio), *map(str, (steps, sequences, units)))
    grus = tables.select(rows, kind="gru", **chosen)
    assert all(row.ratio < 1 for row in grus)


def test_its_times_of_compiling_are_the_recorded_ones():
    told = re.search(r"traced over ten steps, take (\d+) to (\d+)\.", " ".join(README.split()))
    rows = [row for row in compiling.recorded() if row.implementation == "torch traced"]
    assert len(rows) == 2
    assert sorted(map(int, told.groups())) == sorted(round(row.seconds) for row in rows)
    ours = [row.seconds for row in compiling.recorded() if row.implementation == "ours"]
    assert [round(seconds) for seconds in ours] == [2, 2]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_its_times_of_unequal_lengths_are_the_recorded_ones(kind):
    rows = [row for row in packed.recorded() if row.options["threads"] == 2]
    found = {}
    for name in (packed.TORCH_PACKED, packed.TORCH_PADDED):
        theirs = tables.select(rows, kind=kind, implementation=name)
        assert len(theirs) == 6
        ratios = [1 / row.ratio for row in theirs]
        mean = 1 / tables.geometric_mean(theirs)
        found[name] = tuple(map(number, (mean, min(ratios), max(ratios))))
    [line] = re.findall(rf"^\| {kind.upper()} \|.*", README, re.M)
    assert re.findall(r"([\d.]+) \(([\d.]+)–([\d.]+)\)", line) == [*found.values()]
    by = {
        name: [row.seconds for row in tables.select(rows, kind=kind, implementation=name)]
        for name in found
    }
    assert all(a > b for a, b in zip(*by.values(), strict=True)), "PyTorch's takes longer packed"


@pytest.mark.parametrize("name", ["LayerNorm", "LayerNormLSTM"])
def test_the_packages_first_lines_run_copied_alone(name, tmp_path):
    [script] = [s for s in SCRIPTS if re.search(rf"^from layernorm import {name}\b", s, re.M)]
    done = python("-c", script, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not find_spec("onnxruntime"), reason="onnxruntime is not installed")
@pytest.mark.skipif(not find_spec("onnxscript"), reason="onnxscript is not installed")
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
def test_from_an_old_models_weights_to_another_runtime(tmp_path):
    [script] = [script for script in SCRIPTS if "onnx" in script]
    assert len(script.splitlines()) <= 25
    # In five draws the losses fell to 0.29 to 0.36 of what they were.
    assert 'torch.load("old.pt", weights_only=True)' in script
    seeded = f"import torch\ntorch.manual_seed(0)\n{script}{EXACT}"
    done = python("-c", seeded, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    losses = [float(found[1]) for line in lines if (found := re.fullmatch(r"\d+ (\S+)", line))]
    assert len(losses) == 100
    assert sum(losses[-10:]) < sum(losses[:10]) / 2, "it learned nothing"
    compiled, elsewhere = map(float, lines[-2].split())
    # Over many steps the LSTM magnifies rounding, by how much the layer's own error says.
    assert max(compiled, elsewhere) < 1e-5 + 10 * float(lines[-1])
