"""Stale records, told by the digest of the code that a run reaches."""

import pytest

from layernorm.lab import records
from layernorm.lab.records import RecordError, staleness
from layernorm.lab.records.closure import Code

CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}
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


BRANCHES = """
def first():
    return 1

def second():
    return 2

def one(method):
    if method == "layer":
        return first()
    return second()
"""


def test_who_names_no_method_depends_on_what_any_method_does(tmp_path):
    """A claim's check, which goes through them in a loop."""
    given = {"options": {}}, {"options": {}, "method": "layer"}, {"options": {}, "method": "none"}

    def digests(text):
        code = Code(write(tmp_path / "layernorm", {"branches": text}))
        return [staleness._of(code, [("layernorm.branches", "one")], one, {}) for one in given]

    every, layer, none = digests(BRANCHES)
    assert len({every, layer, none}) == 3
    other = digests(BRANCHES.replace("return 1", "return 3"))
    assert [digest in other for digest in (every, layer, none)] == [False, False, True]
    other = digests(BRANCHES.replace("return 2", "return 3"))
    assert [digest in other for digest in (every, layer, none)] == [False, True, False]


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
