"""Stale records, told by the digest of the code that a run reaches."""

import re
import shutil
from itertools import product
from pathlib import Path

import pytest

from layernorm.lab import records
from layernorm.lab.records import RecordError, staleness
from layernorm.lab.records.closure import Code
from layernorm.lab.records.published import published

CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}
PACKAGE = Path(records.__file__).parents[2]
FILES = {  # a package with the shapes of code that ours has
    "formula": """
        import torch.nn.functional as F
        from layernorm.numbers import EPS, UNUSED

        def norm(x, eps=EPS):
            '''Words.'''
            return F.softmax(x + eps)

        def other(x):
            return x
        """,
    "numbers": "EPS = 1e-5\nUNUSED = 1\nTABLE = {}\nTABLE['more'] = 2\n",
    "table": """
        from layernorm import formula

        class Row:
            def __init__(self, name, make):
                self.make = make

        ROWS = {r.name: r for r in [Row("layer", formula.norm), Row("none", formula.other)]}
        """,
    "choice": """
        from layernorm import formula

        def run(operation, x):
            return getattr(formula, operation)(x)

        def lazy(x):
            from layernorm.gpu import kernel
            return kernel(x)
        """,
    "gpu": "import triton\n\ndef kernel(x):\n    return x\n",
    "build": """
        from pathlib import Path

        SOURCES = Path(__file__).with_name("native")

        def library():
            return SOURCES
        """,
    "model": """
        from layernorm import choice
        from layernorm.build import library
        from layernorm.table import ROWS

        class Model:
            def __init__(self, options):
                self.row = ROWS[options.method]
                if options.fast:
                    self.library = library()

        def once(x):
            return choice.run("other", x)

        def train(options):
            if options.method == "none":
                return Model(options)
            return choice.lazy(Model(options))
        """,
    "native/norm.h": "// words\nint one() { return 1; }\n",
}


def write(folder, files):
    for name, text in files.items():
        path = folder / (name if "." in name else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")
    (folder / "__init__.py").touch()
    return folder


def digest(folder, roots=(("layernorm.model", "train"),), gpu=False, **options):
    values = {"method": "layer", "fast": False} | options
    return Code(folder).of_run(roots, values, gpu)


def edited(tmp_path, **changes):
    """The package with changed texts; None deletes a file."""
    files = {name: text for name, text in (FILES | changes).items() if text is not None}
    return write(tmp_path / "edited" / "layernorm", files)


@pytest.fixture
def package(tmp_path):
    return write(tmp_path / "layernorm", FILES)


NATIVE = "native/norm.h"
REACHED = [
    ("formula", "x + eps", "x + 2 * eps"),
    ("formula", "eps=EPS", "eps=0.0"),
    ("formula", "F.softmax", "F.relu"),
    ("numbers", "1e-5", "1e-3"),
    ("table", "self.make = make", "self.make = None"),
    ("model", "self.row", "self.line"),
]


@pytest.mark.parametrize(("file", "old", "new"), REACHED)
def test_what_a_run_computes_with_counts(package, tmp_path, file, old, new):
    assert digest(package) != digest(edited(tmp_path, **{file: FILES[file].replace(old, new)}))


NOT_REACHED = {
    "a docstring": ("formula", "Words.", "Other words."),
    "a comment": ("formula", "import torch", "# a comment\n        import torch"),
    "layout": ("formula", "x + eps", "(x\n            + eps)"),
    "another definition": ("formula", "return x\n", "return -x\n"),
    "another value": ("numbers", "UNUSED = 1", "UNUSED = 2"),
    "another table": ("numbers", "'more'", "'most'"),
    "another way to import": ("formula", "import torch.nn.functional as F",
                              "from torch.nn import functional as F"),
    "C++ of a path not taken": (NATIVE, "return 1", "return 2"),
    "a kernel without a GPU": ("gpu", "return x", "return 2 * x"),
    "another row": ("table", 'Row("none", formula.other)', 'Row("none", None)'),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_REACHED)
def test_what_a_run_does_not_compute_with_does_not_count(package, tmp_path, name):
    file, old, new = NOT_REACHED[name]
    assert old in FILES[file]
    assert digest(package) == digest(edited(tmp_path, **{file: FILES[file].replace(old, new)}))


def test_a_file_may_be_renamed_and_a_definition_moved(package, tmp_path):
    renamed = {name: text.replace("layernorm.numbers", "layernorm.deep.constants")
               for name, text in FILES.items() if name != "numbers"}  # fmt: skip
    renamed |= {"deep/__init__": "", "deep/constants": FILES["numbers"]}
    assert digest(package) == digest(write(tmp_path / "renamed" / "layernorm", renamed))
    moved = FILES["formula"].replace("from layernorm.numbers import EPS, UNUSED", "EPS = 1e-5")
    assert digest(package) == digest(edited(tmp_path, formula=moved, numbers=None))
    other_name = {name: text.replace("norm(x", "standardized(x").replace(".norm", ".standardized")
                  for name, text in FILES.items()}  # fmt: skip
    assert other_name != FILES
    assert digest(package) == digest(write(tmp_path / "named" / "layernorm", other_name))


def test_a_run_follows_its_own_rows_tests_and_arguments(package, tmp_path):
    other = edited(tmp_path, formula=FILES["formula"].replace("return x\n", "return -x\n"))
    assert digest(package, method="none") != digest(other, method="none")
    once = [("layernorm.model", "once")]
    assert digest(package, once) != digest(other, once)
    faster = edited(tmp_path, formula=FILES["formula"].replace("x + eps", "eps + x"))
    assert digest(package, once) == digest(faster, once)
    assert digest(package, method="none") == digest(faster, method="none")


def test_sources_count_where_they_are_used_without_their_words(package, tmp_path):
    def native(text):
        return digest(edited(tmp_path, **{NATIVE: text}), fast=True)

    before = digest(package, fast=True)
    assert native("int one() { return 2; }\n") != before
    assert native("/* other\n words */\nint  one() {  return 1; }  // one\n\n") == before
    kernel = edited(tmp_path, gpu=FILES["gpu"].replace("return x", "return 2 * x"))
    assert digest(package, gpu=True) != digest(kernel, gpu=True)
    assert digest(package, gpu=True, method="none") == digest(kernel, gpu=True, method="none")


def test_definitions_that_use_each_other_have_a_digest(tmp_path):
    def of(text):
        roots = [("layernorm.a", "even")]
        return digest(write(tmp_path / "layernorm", {"a": text}), roots)

    text = "def even(n): return odd(n - 1)\ndef odd(n): return even(n - 1)\n"
    assert of(text) == of(text)
    assert of(text) != of(text.replace("odd(n): return even(n - 1)", "odd(n): return even(n - 2)"))


SYNTAX = """
import asyncio
from dataclasses import dataclass, field
from layernorm import helper

@dataclass(frozen=True)
class Sizes:
    '''Words.'''
    one: int = 1
    rest: dict[str, list[int]] = field(default_factory=dict)

    async def wait(self, *args: int, key: str = "a", **more) -> None:
        async with helper.lock() as held:
            async for each in held:
                yield await each

def run(a, /, b: float = 1.5, *, c=-1, d=1e400, e=b"x", f=..., g=2j):
    global COUNT
    COUNT = 1
    try:
        assert a, f"{a!r:>{b}} and {c=} {{}}" "more"
    except* ValueError as error:
        raise TypeError("ä") from error
    finally:
        del b
    match a:
        case {"x": [1, *others], **left} if others:
            return left
        case Sizes(one=2) | None:
            pass
    found = [x for x in a[1:2, ::3] if (y := x) is not None]
    named = {**helper.TABLE, "k": lambda z=2, *zs: z}
    while True:
        first, *rest = helper.one(*found, **named)
        with helper.lock(), helper.lock() as (p, q):
            ends = first if p else not q
        if method_of(a) in ("x", "y"):
            break
    else:
        found @= 2
    return helper.NUMBER << 1, ends

def method_of(method):
    return 1 if method == "layer" else helper.one()
"""
HELPER = """
NUMBER: int = 3
TABLE = {"layer": 1, "none": 2}
one = lambda: TABLE

def lock():
    return one
"""


def test_a_digest_is_the_same_in_every_python(tmp_path):
    """Else everybody's runs were stale for everybody with another one. The digests of all published
    runs, too, were seen to be the same in 3.10, 3.11, 3.12 and 3.13."""
    folder = write(tmp_path / "layernorm", {"syntax": SYNTAX, "helper": HELPER})
    roots = [("layernorm.syntax", "run"), ("layernorm.syntax", "Sizes")]
    assert digest(folder, roots) == "dfa353d6ef1b1a07"
    assert digest(folder, roots, method="none") == "58765ea13992a21b"


# -- the package itself


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
    normalized = ("ours", "fused", "persistent", "definition", "loop", "script", "no gate norms")
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
    ours = {"ours", "fused", "persistent", "definition", "no gate norms"}  # one class of layers
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


# -- records


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes the source of a module `subject`, importable while the test runs."""
    monkeypatch.syspath_prepend(tmp_path / "code")
    file = tmp_path / "code" / "subject.py"
    file.parent.mkdir()
    file.write_text("def double(x):\n    return 2 * x\n")
    staleness.code.cache_clear()
    yield file.write_text
    staleness.code.cache_clear()


def test_stale_records_are_told(module, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path / "runs"))
    record = records.new(CONFIG, {"final": {"error": 1.0}}, {}, ["subject.double", records.key])
    assert records.stale(record) == ""
    records.save(record)
    other = {**CONFIG, "seed": 5}
    records.save(records.new(other, {"final": {"error": 1.0}}, {}, [records.key]))
    assert records.staleness_banner("digits") == ""
    module("def double(x):\n    return 3 * x\n")
    assert records.stale(record) == ""
    staleness.code.cache_clear()  # as another process
    assert records.stale(record) == "key, subject:double"
    told = "1 of 2 runs were made before the code they depend on changed "
    told += "(from key, subject:double)."
    assert records.staleness_banner("digits") == told
    assert records.staleness_banner(records.load("digits")) == told
    module("syntax error")
    staleness.code.cache_clear()
    assert records.stale(record) == "key, subject:double"
    with pytest.raises(RecordError, match="source of what a run depends on cannot be read"):
        records.new(CONFIG, {"final": {"a": 1.0}}, {}, ["subject.double"])
    assert records.staleness_banner("digits", "long") == ""


def test_a_record_has_the_digest_of_the_code_that_its_process_began_with(package, monkeypatch):
    """A worker of a sweep imports the code once and lives for hours, while files are edited."""
    monkeypatch.setattr(staleness, "FOLDER", package)
    staleness.code.cache_clear()
    try:
        staleness.code()  # where a sweep begins; nothing is looked up yet
        then = digest(package, fast=True)
        write(package, FILES | {"numbers": "EPS = 1", NATIVE: "int one() { return 2; }"})
        (package / "table.py").unlink()
        values = {"arm": "layer", "method": "layer", "options": {"fast": True}}
        made = records.new(
            {**CONFIG, **values}, {"final": {"a": 1.0}}, {}, ["layernorm.model.train"]
        )
        assert made.digest == f"train {then}"
    finally:
        staleness.code.cache_clear()


def test_code_that_is_gone_makes_stale_but_cannot_be_depended_on():
    for gone in ("nowhere 0123456789abcdef", "layernorm.nowhere 0", "gone:x 0", "before"):
        assert records.stale(records.Record(CONFIG, {"final": {"a": 1.0}}, digest=gone))
    for nothing in ("layernorm.nowhere.x", "nowhere", len):
        with pytest.raises(RecordError, match="there is no definition"):
            records.new(CONFIG, {"final": {"a": 1.0}}, {}, [nothing])
