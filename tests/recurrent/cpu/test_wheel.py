"""Wheels with and without compiled libraries, from one tree, and what checks them."""

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import check_wheel
import pairs
import pytest
from apart import python

from layernorm.recurrent.cpu import build

pytest.importorskip("setuptools", "77", reason="pyproject.toml asks for it")
LINK = re.compile(r"(!?)\[[^][]*\]\(([^()\s]+)\)")
FILES = ["pyproject.toml", "setup.py", "README.md", "LICENSE", "layernorm/__init__.py"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The sources of a wheel, without most of the package, and a compiler that is done at
    once."""
    folder = tmp_path_factory.mktemp("tree")
    for name in [*FILES, "layernorm/py.typed"]:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(pairs.ROOT / name, folder / name)
    cpu = build.SOURCES.parent
    shutil.copytree(
        cpu, folder / cpu.relative_to(pairs.ROOT),
        ignore=shutil.ignore_patterns("__pycache__", build.PREBUILT.name),
    )  # fmt: skip
    compiler = folder / "compiler"
    compiler.write_text('#!/bin/sh\nfor last; do :; done; echo "$@" > "$last"\n')
    compiler.chmod(0o755)
    return folder


def make(tree: Path, kind: str, choice: str | None = None) -> subprocess.CompletedProcess:
    """Build a wheel or an sdist in a process without torch, as pip's own is."""
    program = (
        "import sys; sys.modules['torch'] = None\n"
        f"from setuptools import build_meta; print(build_meta.build_{kind}('dist'))"
    )
    chosen = {} if choice is None else {"LAYERNORM_PREBUILD": choice}
    kept = {name: value for name, value in os.environ.items() if name != "LAYERNORM_PREBUILD"}
    return python("-c", program, env=kept | chosen | {"CXX": str(tree / "compiler")}, cwd=tree)


@pytest.fixture(scope="module")
def built(tree):
    """The wheel of this platform, then the pure one from the same tree."""
    wheels = []
    for choice in ("1", None):
        done = make(tree, "wheel", choice)
        assert done.returncode == 0, done.stderr
        wheels.append(tree / "dist" / done.stdout.split()[-1])
    return wheels


def text(wheel: Path, end: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(end)]
        return archive.read(name).decode()


def test_a_wheel_of_this_platform_suits_every_python(built):
    platform_wheel, pure = built
    tags = [line for line in text(platform_wheel, "/WHEEL").splitlines() if "Tag" in line]
    assert len(tags) == 1
    assert tags[0].startswith("Tag: py3-none-")
    assert tags[0].endswith(os.uname().machine)
    assert "Root-Is-Purelib: false" in text(platform_wheel, "/WHEEL")
    assert pure.name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true" in text(pure, "/WHEEL")


def test_a_wheel_of_this_platform_has_all_libraries_and_the_pure_one_none(built, tree):
    for wheel in built:
        check_wheel.contents(str(wheel), str(tree))
    assert len(check_wheel.libraries(tree)) == 2 * len(build.instruction_sets())
    with zipfile.ZipFile(built[1]) as archive:
        assert not [name for name in archive.namelist() if build.PREBUILT.name in name]


def test_each_library_is_compiled_for_its_instructions_and_whole(built, tmp_path):
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "layernorm" / "recurrent" / "cpu" / build.PREBUILT.name
    for instructions in build.instruction_sets():
        path = folder / build.library_name(instructions)
        assert build._whole(path)
        assert path.read_text().startswith(" ".join(build.options(instructions)))


def test_the_description_of_a_wheel_leads_nowhere_beside_it(built):
    """PyPI's page has README.md alone: links lead to the files of this version's tag, and are
    otherwise README's; its Python is left as it is."""
    told = text(built[0], "/METADATA").partition("\n\n")[2]
    assert text(built[1], "/METADATA").partition("\n\n")[2] == told
    readme = (pairs.ROOT / "README.md").read_text()
    version = tomllib.loads((pairs.ROOT / "pyproject.toml").read_text())["project"]["version"]
    tag = rf"{re.escape(pairs.address())}/(?:blob|raw|tree)/v{re.escape(version)}/?"
    assert re.sub(rf"\({tag}", "(", told).strip() == readme.strip()
    aims = [aim for _, aim in LINK.findall(re.sub(r"^```.*?^```", "", told, flags=re.M | re.S))]
    assert len(aims) > 10
    assert [aim for aim in aims if not aim.startswith("https://")] == []
    for kind, aim in LINK.findall(readme):
        if (pairs.ROOT / aim).is_file():
            place = "raw" if kind else "blob"
            assert f"({pairs.address()}/{place}/v{version}/{aim})" in told


def test_a_library_too_few_or_of_other_sources_is_found_missing(built, tree, tmp_path):
    lesser = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(lesser, "w") as copy:
        for info in whole.infolist():
            if "-baseline-" not in info.filename:
                copy.writestr(info, whole.read(info))
    with pytest.raises(SystemExit, match=r"missing .*-baseline-"):
        check_wheel.contents(str(lesser), str(tree))
    changed = shutil.copytree(tree, tmp_path / "changed")
    norm = changed / build.SOURCES.relative_to(pairs.ROOT) / "norm.h"
    norm.write_text(norm.read_text() + "// other\n")
    with pytest.raises(SystemExit, match=r"superfluous .*-baseline-"):
        check_wheel.contents(str(built[0]), str(changed))
    again = make(changed, "wheel", "1")  # over what the first build has left
    assert again.returncode == 0, again.stderr
    check_wheel.contents(str(changed / "dist" / built[0].name), str(changed))


def test_the_source_distribution_builds_at_first_use(built, tree, tmp_path):
    """It has the C++ and no library, though libraries were built in the same tree."""
    done = make(tree, "sdist", "1")
    assert done.returncode == 0, done.stderr
    with tarfile.open(tree / "dist" / done.stdout.split()[-1]) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    names = {path.name for path in build.SOURCES.iterdir()}
    assert {path.name for path in source.glob("layernorm/recurrent/cpu/native/*")} == names
    assert (source / "setup.py").is_file()
    assert not list(source.rglob("*.so"))


def test_another_value_of_the_variable_is_refused(tree):
    done = make(tree, "wheel", "yes")
    assert done.returncode != 0
    assert "LAYERNORM_PREBUILD must be 0 or 1, got 'yes'" in done.stderr


def test_a_compiler_that_fails_makes_no_wheel(tree, tmp_path):
    broken = shutil.copytree(tree, tmp_path / "broken", ignore=shutil.ignore_patterns("dist"))
    (broken / "compiler").write_text("#!/bin/sh\necho bad luck >&2; exit 1\n")
    done = make(broken, "wheel", "1")
    assert done.returncode != 0
    assert "bad luck" in done.stderr
    assert not list(broken.glob("dist/*.whl"))
