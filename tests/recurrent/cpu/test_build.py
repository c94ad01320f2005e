"""Building the fused path's library: once, side by side, damaged, ahead, or not at all."""

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from apart import python, started
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


def write(text: str) -> str:
    """A compiler's script: it writes this, and no library, where the library belongs."""
    return f'for last; do :; done; echo {text} > "$last"'


@needs_compiler
def test_built_once_with_a_message(cache, capsys):
    before = os.umask(0o022)
    try:
        first = build.build("baseline")
    finally:
        os.umask(before)
    assert "once" in capsys.readouterr().err
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in cache.iterdir()}
    assert modes == {".so": 0o755, ".sha256": 0o644}  # others may read what the umask allows
    written = first.stat().st_mtime_ns
    assert build.build("baseline") == first
    assert (capsys.readouterr().err, first.stat().st_mtime_ns) == ("", written)


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A compiler that is done at once: it copies what the real one has made."""
    folder = tmp_path_factory.mktemp("ready")
    command = [*build.compiler(), *build.options("baseline"), str(build.SOURCES / "recurrent.cpp")]
    subprocess.run([*command, "-O0", "-o", str(folder / "library")], check=True)
    return stand_in(folder, "c++", f'for last; do :; done; cp {folder}/library "$last"')


def made_elsewhere(path: Path) -> None:
    """The hash is that of the file, which this system cannot load."""
    path.write_text("for another system")
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
        lambda path: path.with_suffix(".sha256").write_bytes(b"\xff" * 64),
        made_elsewhere,
    ],
)
def test_a_file_that_cannot_be_used_is_built_anew(cache, ready, damage, monkeypatch):
    """Loading a file that was cut off would end the process, not raise."""
    monkeypatch.setenv("CXX", str(ready))
    monkeypatch.setattr(build, "instruction_set", lambda: "baseline")
    damage(build.build())
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
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "bin", "c++", write("nothing"))))
    with pytest.raises(build.BuildError, match="cannot be loaded"):
        build.load()


def start(compiler: Path) -> subprocess.Popen:
    """A process that builds, with a group of its own."""
    program = "from layernorm.recurrent.cpu import build; print(build.load().arguments_size())"
    env = os.environ | {"CXX": str(compiler)}
    return started("-c", program, env=env, start_new_session=True)


@needs_compiler
def test_two_processes_build_at_once(cache, ready):
    """Both find a whole library, and no temporary file stays."""
    for done in [start(ready) for _ in range(2)]:
        out, err = done.communicate()
        assert done.returncode == 0, err
        assert int(out) > 0
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]


def test_what_a_killed_build_leaves_is_removed_and_what_a_slow_one_needs_is_not(
    cache, tmp_path, monkeypatch
):
    compiler = stand_in(tmp_path, "slow", f"{write('begun')}; touch {tmp_path}/$$.begun; sleep 600")
    monkeypatch.setenv("CXX", str(stand_in(tmp_path, "c++", write("library"))))
    slow = []
    try:
        for count in (1, 2):
            slow.append(start(compiler))
            while len(list(tmp_path.glob("*.begun"))) < count and slow[-1].poll() is None:
                time.sleep(0.1)
        needed = set(cache.glob("building-*/*"))
        assert len(needed) == len(slow)
        kill(slow.pop(0))
        build.build().unlink()
        assert set(cache.glob("building-*/*")) == needed
    finally:
        for process in slow:
            kill(process)
    assert set(cache.glob("building-*/*")) == needed
    (cache / "building-of-an-older-version.so").write_text("")
    build.build()
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]


def kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_the_name_tells_versions_apart(cache, tmp_path, monkeypatch):
    """Sources, options and instruction set each lead to a file of their own; the compiler, which
    may be gone when the library is used, does not."""
    names = {build.library_path("baseline"), build.library_path("AVX2")}
    monkeypatch.setenv("CXX", "another")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.library_path("AVX2") in names
    monkeypatch.setattr(build, "OPTIONS", ["-O2"])
    names.add(build.library_path("baseline"))
    changed = tmp_path / "native"
    changed.mkdir()
    (changed / "recurrent.cpp").write_text("// other sources")
    monkeypatch.setattr(build, "SOURCES", changed)
    names.add(build.library_path("baseline"))
    assert len(names) == 4
    assert {path.parent for path in names} == {cache}


def test_the_command_builds_ahead(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "bin", "c++", write("library"))))
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "argv", ["build"])
    build.main()
    assert capsys.readouterr().out.split() == [str(build.library_path())]
    monkeypatch.setattr(sys, "argv", ["build", "--all"])
    build.main()
    paths = [str(build.library_path(i)) for i in ("baseline", "AVX512", "AVX2")]
    assert capsys.readouterr().out.split() == paths
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setattr(build, "OPTIONS", [])
    with pytest.raises(SystemExit, match=r"no fast path.*false.* failed"):
        build.main()


@needs_compiler
def test_a_compiler_of_several_words(cache, tmp_path, monkeypatch):
    """CXX="ccache g++", in a folder with a space."""
    ccache = stand_in(tmp_path / "my tools", "ccache", 'touch "$0.used"; exec "$@"')
    monkeypatch.setenv("CXX", f"{shlex.quote(str(ccache))} g++")
    assert build._open(build.build("baseline")).arguments_size() > 0
    assert Path(f"{ccache}.used").exists()


def test_without_a_compiler(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler.*install one"):
        build.load()


@pytest.mark.parametrize(
    "command", ["no-such-compiler", "no-such-compiler -v", "no-such-'compiler"]
)
def test_a_compiler_that_is_not_there(command, monkeypatch):
    monkeypatch.setenv("CXX", command)
    with pytest.raises(build.BuildError, match="no-such-"):
        build.compiler()


def test_a_compiler_that_fails(cache, tmp_path, monkeypatch):
    script = 'echo "bad luck" >&2; exit 1'
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


def alone(program: str, **environment) -> list[str]:
    """The words that a process prints which has nothing but these variables and the instruction
    set that torch was told to take, and whose user has no entry in the list of users, as in many
    containers."""
    preamble = "import pwd\ndef unknown(user): raise KeyError(user)\npwd.getpwuid = unknown\n"
    given = {"PYTHONPATH": str(Path(build.__file__).parents[3])}
    given |= {name: os.environ[name] for name in ("ATEN_CPU_CAPABILITY",) if name in os.environ}
    done = python("-c", preamble + program, env=given | environment, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": "", "LAYERNORM_CACHE": "/nowhere"}, "no C++ compiler"),
        ({"PATH": os.defpath}, "no home folder"),
    ],
)
def test_layers_compute_without_the_library(environment, reason):
    """In a process of its own: one warning with the reason, the definition's numbers, also in a
    compiled graph, and backend="fused" refused."""
    program = f"""
import warnings, torch, layernorm
torch.manual_seed(0)
layer, x = layernorm.LayerNormLSTM(3, 5), torch.randn(4, 2, 3)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    y = [layer(x)[0] for _ in range(3)][-1]
print(len(caught), caught[0].category.__name__, {reason!r} in str(caught[0].message))
print(torch.allclose(torch.compile(layer, backend="eager", fullgraph=True)(x)[0], y))
layer.backend = "reference"
print(torch.equal(layer(x)[0], y))
layer.backend = "fused"
try:
    layer(x)
except ValueError as refusal:
    print({reason!r} in str(refusal))
"""
    assert alone(program, **environment) == ["1", "SlowPathWarning", *["True"] * 4]


@needs_compiler
def test_a_library_built_ahead_needs_no_compiler_and_no_room(tmp_path):
    """As in a container: a cache that cannot be written, no compiler, no home folder."""
    path, cache = build.build(), tmp_path / "cache"
    cache.mkdir()
    for file in (path, path.with_suffix(".sha256")):
        shutil.copy(file, cache / file.name)
        (cache / file.name).chmod(0o444)
    cache.chmod(0o555)
    before = cache.stat().st_mtime_ns
    program = """
import torch, layernorm
layer = layernorm.LayerNormGRU(3, 5, backend="fused")
print(layer(torch.ones(4, 2, 3))[0].isfinite().all())
"""
    said = alone(program, LAYERNORM_CACHE=str(cache), PATH="", PYTHONWARNINGS="error")
    assert said == ["tensor(True)"]
    assert cache.stat().st_mtime_ns == before
