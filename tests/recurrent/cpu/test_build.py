"""Building the fused path's library: once, side by side, damaged, or not at all."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys

import pytest
from recurrent.recurrent_fused import distance

from layernorm.recurrent.cpu import binding, build

HAS_COMPILER = subprocess.run(["sh", "-c", "command -v g++ || command -v clang++"]).returncode == 0
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler here")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a compiler that takes a moment only: no optimization."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAYERNORM_CACHE", str(folder))
    monkeypatch.setattr(build, "OPTIONS", ["-O0" if o == "-O3" else o for o in build.OPTIONS])
    return folder


def stand_in(folder, name: str, script: str):
    """A program of that name."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@needs_compiler
def test_built_once_with_a_message(cache, capsys):
    first = build.build("baseline")
    assert "once" in capsys.readouterr().err
    written = first.stat().st_mtime_ns
    assert build.build("baseline") == first
    assert (capsys.readouterr().err, first.stat().st_mtime_ns) == ("", written)
    assert {path.suffix for path in cache.iterdir()} == {".so", ".sha256"}


@needs_compiler
@pytest.mark.parametrize("damage", [lambda data: data[:1000], lambda data: data[:-1] + b"?"])
def test_a_damaged_file_is_built_anew(cache, damage, monkeypatch):
    """Loading a file that was cut off would end the process, not raise."""
    monkeypatch.setattr(build, "instruction_set", lambda: "baseline")
    path = build.build()
    path.write_bytes(damage(path.read_bytes()))
    library = build.load()
    assert library.layout.size == library.arguments_size()


REORDERED = ("IN(x) IN(h0)", "IN(h0) IN(x)")
RENAMED = ("WHOLE(terms)", "WHOLE(ways)")
RESIZED = ("IN(name) const void* name;", "IN(name) const void* name[2];")


@needs_compiler
@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (REORDERED, contextlib.nullcontext()),  # the library says where it wants what
        (RENAMED, pytest.raises(struct.error)),
        (RESIZED, pytest.raises(build.BuildError, match="not as described")),
    ],
)
def test_arguments_are_packed_as_the_library_has_them(
    cache, tmp_path, monkeypatch, change, refused
):
    source = shutil.copytree(build.SOURCES, tmp_path / "native")
    monkeypatch.setattr(build, "SOURCES", source)
    assert (source / "sequence.h").read_text().count(change[0]) == 1
    for file in source.iterdir():
        text = file.read_text().replace(*change)
        file.write_text(text.replace("a.terms", "a.ways") if change is RENAMED else text)
    with refused:
        library = build.load()
        monkeypatch.setattr(binding, "library", lambda: library)
        assert distance("lstm", [3, 2, 1], 4, 5) < 1e-11


def test_a_library_that_cannot_be_loaded(cache, tmp_path, monkeypatch):
    """The compiler of this test writes something else."""
    script = 'if [ "$1" = --version ]; then echo one; else for last; do :; done; echo > "$last"; fi'
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "bin", "c++", script)))
    with pytest.raises(build.BuildError, match="cannot be loaded"):
        build.load()


@needs_compiler
def test_two_processes_build_at_once(cache):
    """Both find a whole library, and no temporary file stays."""
    program = (
        "from layernorm.recurrent.cpu import build\n"
        "build.OPTIONS = ['-O0' if o == '-O3' else o for o in build.OPTIONS]\n"
        "print(build._open(build.build('baseline')).arguments_size())"
    )
    command = [sys.executable, "-c", program]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for done in both:
        out, err = done.communicate()
        assert done.returncode == 0, err
        assert int(out) > 0
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]


def test_the_name_tells_versions_apart(cache, tmp_path, monkeypatch):
    """Sources, compiler and instruction set each lead to a file of their own."""
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "one", "g++", "echo compiler 1").parent))
    monkeypatch.delenv("CXX", raising=False)
    names = {build.library_path("baseline"), build.library_path("AVX2")}
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "two", "g++", "echo compiler 2").parent))
    names.add(build.library_path("baseline"))
    changed = tmp_path / "native"
    changed.mkdir()
    (changed / "recurrent.cpp").write_text("// other sources")
    monkeypatch.setattr(build, "SOURCES", changed)
    names.add(build.library_path("baseline"))
    assert len(names) == 4
    assert {path.parent for path in names} == {cache}


def test_without_a_compiler(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler.*install one"):
        build.load()


def test_another_compiler_by_name(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match="no-such-compiler"):
        build.compiler()


def test_a_compiler_that_fails(cache, tmp_path, monkeypatch):
    script = 'if [ "$1" = --version ]; then echo one; else echo "bad luck" >&2; exit 1; fi'
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "bin", "c++", script)))
    with pytest.raises(build.BuildError, match="bad luck"):
        build.load()
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("LAYERNORM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(build.BuildError, match="LAYERNORM_CACHE"):
        build.load()


def test_a_file_in_the_folders_place(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("LAYERNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "bin", "c++", "echo one")))
    with pytest.raises(build.BuildError, match="LAYERNORM_CACHE"):
        build.load()


def test_layers_compute_without_a_compiler(tmp_path):
    """In a process of its own: one warning with the reason, the definition's numbers, and
    backend="fused" refused."""
    program = """
import warnings, torch, layernorm
torch.manual_seed(0)
layer, x = layernorm.LayerNormLSTM(3, 5), torch.randn(4, 2, 3)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    y = [layer(x)[0] for _ in range(3)][-1]
print(len(caught), caught[0].category.__name__, "no C++ compiler" in str(caught[0].message))
layer.backend = "reference"
print(torch.equal(layer(x)[0], y))
layer.backend = "fused"
try:
    layer(x)
except ValueError as refusal:
    print("no C++ compiler" in str(refusal))
"""
    environment = {
        key: value for key, value in os.environ.items() if key not in ("CXX", "PYTHONWARNINGS")
    }
    environment |= {"PATH": str(tmp_path), "LAYERNORM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "SlowPathWarning", "True", "True", "True"]
