"""Edits of a copy of the package: the published runs that they make stale, and those that stay."""

import re
import shutil
from itertools import product
from pathlib import Path

import pytest

from layernorm.lab import records
from layernorm.lab.records import staleness
from layernorm.lab.records.closure import Code
from layernorm.lab.records.published import published

PACKAGE = Path(records.__file__).parents[2]


@pytest.fixture(scope="module")
def runs():
    """A published run of each experiment and method (of each arm and kind of a benchmark), with
    what it starts from."""
    here, found = staleness.code(), {}
    for run in published():
        *labels, then = run.digest.split()
        what = run.config["experiment"], run.config["method"]
        benchmark = what[0].startswith("bench_")
        what += (run.config["arm"], run.config["options"].get("kind")) if benchmark else ()
        if not labels or what in found:
            continue
        for groups in product(*(staleness._labelled(here, label) for label in labels)):
            names = [name for group in groups for name in group]
            if what not in found or staleness._of(here, names, run.config, run.environment) == then:
                found[what] = run, names
    return found


@pytest.fixture
def copy(tmp_path, runs):
    """The package's copy, with `stale()`: the runs that its changes make stale."""
    folder = tmp_path / "layernorm"
    ignored = shutil.ignore_patterns("published", "__pycache__", "cli", "claims")
    shutil.copytree(PACKAGE, folder, ignore=ignored)

    class Copy:
        path = folder

        def change(self, function, old, new):
            """Change all functions of that name, in whatever file they are."""
            changed = 0
            for file in folder.rglob("*.py"):
                text = file.read_text()
                before, found, rest = text.partition(f"\ndef {function}(")
                body, end, after = rest.partition("\n\n\n")
                head, words, body = body.rpartition('"""')
                if found and old in body:
                    file.write_text(before + found + head + words + body.replace(old, new)
                                    + end + after)  # fmt: skip
                    changed += 1
            assert changed

        def stale(self):
            here, now = Code(folder), staleness.code()
            return {
                what
                for what, (run, names) in runs.items()
                if staleness._of(here, names, run.config, run.environment)
                != staleness._of(now, names, run.config, run.environment)
            }

    assert runs
    return Copy()


RECURRENT = ("adding", "copy_memory", "attentive_reader", "step_statistics")


def of(found, *experiments):
    return {(what[0], what[1]) for what in found if what[0] in experiments}


def test_a_changed_epsilon_makes_those_stale_that_computed_with_it(copy, runs):
    copy.change("layer_norm", "var + eps", "var + 2 * eps")
    stale = copy.stale()
    for name in ("mnist", "drift", "initialization", *RECURRENT):
        there = {what for what in runs if what[0] == name}
        assert stale & there == {what for what in there if what[1] == "layer"}, name
    compared = {what[2:] for what in stale if what[0] == "bench_recurrent"}
    fresh = {what[2:] for what in runs if what[0] == "bench_recurrent"}
    assert {("definition", "lstm"), ("torch", "lstm")} <= fresh
    normalized = ("ours", "fused", "persistent", "definition", "loop", "script")
    normalized += ("no norms",)  # more than need be: its operators can call the definition
    assert compared == {(arm, kind) for arm, kind in fresh if arm in normalized}
    trained = {what[1:3] for what in stale if what[0] == "bench_training"}
    assert ("layer", "layer/torch") in trained
    assert {method for method, _ in trained} <= {"layer", "none"}
    assert ("bench_layer", "layer") in of(stale, "bench_layer")
    # More than need be: it is one benchmark with bench_training, whose subjects have norms.
    assert of(stale, "bench_engine") == {("bench_engine", "none")}
    assert of(stale, "batch_order", "data_shift") == {
        ("batch_order", "layer"), ("data_shift", "layer")}  # fmt: skip


def test_a_norm_that_is_not_a_runs_own_makes_it_not_stale(copy):
    copy.change("group_norm", "return", "return 2 *")
    stale = copy.stale()
    assert of(stale, "mnist", "attentive_reader", "adding", "drift", "bench_recurrent") == set()
    assert of(stale, "bench_training") == {("bench_training", "group")}
    assert ("convnet", "group") in stale or ("convnet", "group") in of(stale, "convnet")
    assert not {method for _, method in of(stale, "convnet")} & {"none", "batch", "instance"}


def test_changed_cpp_makes_those_stale_that_could_use_it(copy, runs):
    (source,) = list(copy.path.rglob("norm.h"))
    source.write_text(source.read_text().replace("{", "{ /* words */", 1) + "\n// words\n")
    assert copy.stale() == set()
    source.write_text(source.read_text().replace("{", "{ ;", 1))
    stale = copy.stale()
    for name in RECURRENT:
        assert of(stale, name) == {(name, "layer")}
    ours = {"ours", "fused", "persistent", "definition", "no norms"}  # one class of layers
    recorded = {what[2] for what in runs if what[0] == "bench_recurrent"}
    compared = {what[2] for what in stale if what[0] == "bench_recurrent"}
    assert compared == ours & recorded
    assert not of(stale, "mnist", "convnet", "drift", "bench_layer")
    assert of(stale, "bench_engine") == {("bench_engine", "none")}  # as above


def test_a_changed_kernel_makes_runs_on_gpus_stale(copy, runs):
    kernels = [f for f in (copy.path / "kernels").rglob("*.py") if "@triton.jit" in f.read_text()]
    assert kernels
    for file in kernels:
        file.write_text(file.read_text().replace("@triton.jit", "@triton.jit(debug=True)"))
    stale = copy.stale()
    assert all(runs[what][0].environment["gpus"] for what in stale)
    arms = {what[2] for what in stale}
    assert arms >= {"triton", "fused", "persistent"}
    assert not arms & {"torch", "definition", "loop", "script"}
    run, names = runs["mnist", "layer"]
    on_gpu = {**run.environment, "gpus": ["one"]}
    digests = {staleness._of(code, names, run.config, on_gpu)
               for code in (Code(copy.path), staleness.code())}  # fmt: skip
    assert len(digests) == 2


def test_words_and_names_of_files_make_no_published_run_stale(copy):
    for file in copy.path.rglob("*.py"):
        text = file.read_text()
        file.write_text("# words\n" + text.replace('"""', '"""Words. ', 1))
    copy_of = copy.path / "functional.py"
    copy_of.rename(copy.path / "formulas.py")
    for file in copy.path.rglob("*.py"):
        text = file.read_text()
        text = text.replace("layernorm.functional", "layernorm.formulas")
        lines = (r"^( *from layernorm import .*?)\bfunctional\b", r"\1formulas as functional")
        text = re.sub(*lines, text, flags=re.MULTILINE)
        file.write_text(text)
    assert copy.stale() == set()
