"""The libraries that come with a wheel: which one is used, when none is, and that each is right."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from apart import python
from recurrent.recurrent_fused import F32, NETS, Case, agrees, as_exact

from layernorm.cli import doctor
from layernorm.recurrent import cpu
from layernorm.recurrent.cpu import binding, build

CAPABILITIES = {  # what torch may say, and the library for it
    "AVX512": "AVX512", "AVX2": "AVX2", "DEFAULT": "baseline", "NO AVX": "baseline",
    "SVE256": "baseline",
}  # fmt: skip
HERE = {"AVX512": ["baseline", "AVX2", "AVX512"], "AVX2": ["baseline", "AVX2"]}
needs_library = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))


def install(library: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for file in (library, library.with_suffix(".sha256")):
        shutil.copy(file, folder / file.name)
    return folder / library.name


def stand_in(folder: Path, instructions: str) -> Path:
    """A file that is whole, under the name of a library of that kind."""
    folder.mkdir(exist_ok=True)
    path = folder / build.library_name(instructions)
    path.write_text(instructions)
    path.with_suffix(".sha256").write_text(build._hash(path))
    return path


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """The folder of a wheel's libraries, on a machine without a compiler, a cache and a home."""
    folder = tmp_path / "prebuilt"
    monkeypatch.setattr(build, "PREBUILT", folder)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LAYERNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_torchs_capability_decides(bare, monkeypatch, capability):
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    paths = {each: stand_in(bare, each) for each in build.instruction_sets()}
    assert sorted(paths) == ["AVX2", "AVX512", "baseline"]
    assert build.prebuilt() == paths[CAPABILITIES[capability]]


def test_other_processors_have_one_library(monkeypatch):
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    assert build.instruction_sets() == ["baseline"]
    assert build.library_name("baseline").startswith("recurrent-aarch64-baseline-")


def test_the_variable_that_lowers_torchs_choice_lowers_ours(tmp_path):
    for each in build.instruction_sets():
        stand_in(tmp_path, each)
    program = (
        "import sys; from pathlib import Path; from layernorm.recurrent.cpu import build\n"
        "build.PREBUILT = Path(sys.argv[1]); print(build.prebuilt().name)"
    )
    lower = os.environ | {"ATEN_CPU_CAPABILITY": "default", "CXX": ""}
    done = python("-c", program, str(tmp_path), env=lower, check=True)
    assert done.stdout.strip() == build.library_name("baseline")


def test_a_library_of_other_sources_or_options_is_not_used(bare, tmp_path, monkeypatch):
    stand_in(bare, build.instruction_set())
    assert build.prebuilt() is not None
    with monkeypatch.context() as changed:
        changed.setattr(build, "OPTIONS", [*build.OPTIONS, "-DOTHER"])
        assert build.prebuilt() is None
    source = shutil.copytree(build.SOURCES, tmp_path / "native")
    monkeypatch.setattr(build, "SOURCES", source)
    assert build.prebuilt() is not None
    (source / "norm.h").write_text((source / "norm.h").read_text() + "// other\n")
    assert build.prebuilt() is None
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler"):
        build.load()


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_text(""), lambda path: path.with_suffix(".sha256").unlink()]
)
def test_a_damaged_library_is_not_loaded(bare, damage):
    """Loading a file that was cut off would end the process."""
    damage(stand_in(bare, build.instruction_set()))
    assert build.prebuilt() is None
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler"):
        build.load()


@needs_library
def test_a_library_for_another_system_is_replaced_by_one_of_the_cache(bare, tmp_path):
    """Whole, but it cannot be loaded; the cache's can, and no compiler is asked for."""
    broken = stand_in(bare, build.instruction_set())
    own = install(Path(binding.library()._name), tmp_path / "cache")
    assert build.load()._name == str(own)
    assert broken.read_text() == build.instruction_set()


def test_a_compiler_that_is_named_compiles(bare, monkeypatch):
    monkeypatch.setenv("CXX", " ")  # none
    stand_in(bare, build.instruction_set())
    assert build.prebuilt() is not None
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.prebuilt() is None
    with pytest.raises(build.BuildError, match="no-such-compiler"):
        build.load()


def test_the_command_compiles_nothing_that_is_there(bare, monkeypatch, capsys):
    paths = [str(stand_in(bare, each)) for each in build.instruction_sets()]
    monkeypatch.setattr(sys, "argv", ["build", "--all"])
    build.main()
    assert capsys.readouterr().out.split() == paths
    assert not build.cache_folder().exists()


@pytest.fixture(scope="module", params=["baseline", "AVX2", "AVX512"])
def compiled(request):
    """An instruction set of this machine and its library, compiled with all options."""
    if request.param not in HERE.get(build.instruction_set(), ["baseline"]):
        pytest.skip(f"this machine has no {request.param}")
    return request.param, build.prebuilt(request.param) or build.build(request.param)


@pytest.fixture
def variant(compiled, bare, monkeypatch):
    """The library where a wheel has it, in use for all calls."""
    instructions, file = compiled
    monkeypatch.setattr(build, "instruction_set", lambda: instructions)
    path, library = install(file, bare), build.load()
    assert library._name == str(path)
    monkeypatch.setattr(binding, "library", lambda: library)
    return instructions


@needs_library
def test_every_variant_computes_the_definition(variant):
    """Values and gradients, uniform and falling lengths, in both directions. The variants add in
    another order and with or without fused multiplication, so their bits differ."""
    for kind, form in NETS:
        for reverse in (False, True):
            agrees(Case(kind, form, (5, 5, 4, 2, 2, 1), 101, 7, reverse), path=cpu)
    for kind, form in (("lstm", "paper"), ("gru", "gru")):
        agrees(Case(kind, form, (26,) * 3, 40, 7), path=cpu)
        as_exact(Case(kind, form, (5, 5, 4, 2, 2, 1), 101, 7), F32, path=cpu)
    line = doctor._recurrent()
    assert line.says.startswith(f"compiled for {variant} with the package: {build.PREBUILT}")


@needs_library
def test_the_doctor_tells_a_library_of_the_cache_apart():
    expected = f"compiled for {build.instruction_set()} on this machine: {build.cache_folder()}"
    assert doctor._recurrent().says.startswith(expected)
