"""The files by which other machines are set up, Binder's and the development container's, agree
with the package and name nothing that is not there."""

import json
import re
import subprocess
from importlib.util import find_spec

import pairs
import pytest
import yaml
from book.test_repository import CONDA_NAMES, MAKEFILE, PROJECT, requirements
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = pairs.ROOT
BINDER = ROOT / ".binder"
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
TESTED = {  # the Python that the workflow tests with
    step["with"]["python-version"]
    for step in WORKFLOW["jobs"]["test"]["steps"]
    if "setup-python" in step.get("uses", "")
}


def test_binder_has_what_a_chapter_imports():
    """The bounds of [chapters], and Jupyter's kernel."""
    listed = yaml.safe_load((BINDER / "environment.yml").read_text())["dependencies"]
    [from_pip] = [entry["pip"] for entry in listed if isinstance(entry, dict)]
    python, *lines = [line for line in [*listed, *from_pip] if isinstance(line, str)]
    assert {python} == {f"python={version}" for version in TESTED}
    found = {r.name: str(r.specifier) for r in map(Requirement, lines)}
    wanted = requirements("chapters")
    wanted |= {"ipykernel": requirements("book")["ipykernel"], "pip": Requirement("pip")}
    assert found == {CONDA_NAMES.get(name, name): str(r.specifier) for name, r in wanted.items()}


def test_binder_runs_what_exists():
    assert {path.name for path in BINDER.iterdir()} == {"apt.txt", "environment.yml", "postBuild"}
    script = BINDER / "postBuild"
    assert script.stat().st_mode & 0o111, "Binder runs it as a program"
    subprocess.run(["bash", "-n", script], check=True)
    lines = [line for line in script.read_text().splitlines() if not line.startswith(("#", "set"))]
    modules = [re.fullmatch(r"python -m (\S+)( .*)?", line)[1] for line in lines]
    assert modules[0] == "pip"
    assert "--no-deps -e ." in lines[0], "environment.yml says what it needs"
    assert "layernorm.recurrent.cpu.build" in modules
    assert [name for name in modules[1:] if find_spec(name) is None] == []


def test_container_is_pinned_to_the_python_that_is_tested():
    pattern = r"mcr\.microsoft\.com/devcontainers/python:\d+-(\d+\.\d+)-[a-z]+"
    version = re.fullmatch(pattern, CONTAINER["image"])[1]
    assert {version} == TESTED
    assert version in SpecifierSet(PROJECT["requires-python"])
    assert CONTAINER["updateContentCommand"].endswith(f"PYTHON=python{version}")


def test_container_is_set_up_as_make_does():
    make, target, python = CONTAINER["updateContentCommand"].split()
    variables = dict(re.findall(r"^(\w+) := (.*)$", MAKEFILE, re.MULTILINE))
    assert (make, target) == ("make", variables["INSTALLED"].replace("$(VENV)", variables["VENV"]))
    assert re.search(r"^PYTHON \?= ", MAKEFILE, re.MULTILINE)
    done = subprocess.run(
        [make, "-n", "-B", target, python], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pip install --disable-pip-version-check -c constraints.txt" in done.stdout
    settings = CONTAINER["customizations"]["vscode"]["settings"]
    interpreter = f"${{containerWorkspaceFolder}}/{variables['VENV']}/bin/python"
    assert settings["python.defaultInterpreterPath"] == interpreter


@pytest.mark.parametrize("name", [".binder", ".devcontainer"])
def test_documents_name_them(name):
    assert name in (ROOT / "README.md").read_text() + (ROOT / "book" / "how-to-run.md").read_text()
