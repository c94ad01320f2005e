"""The files around the code agree with each other: environments, commands, workflows, licenses."""

import os
import re
import subprocess
import tomllib

import address
import pairs
import pytest
import yaml
from apart import python
from packaging.requirements import Requirement

from layernorm.lab import data

ROOT = pairs.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONDA_NAMES = {"torch": "pytorch"}


def requirements(*extras: str) -> dict[str, Requirement]:
    """The requirements of the package with these extras, by name."""
    found = {}
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in extras)]
    for line in (line for lines in lists for line in lines):
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            found |= requirements(*requirement.extras)
        else:
            found[requirement.name] = requirement
    return found


def conda_requirements() -> dict[str, Requirement]:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    [from_pip] = [entry["pip"] for entry in environment if isinstance(entry, dict)]
    lines = [line for line in [*environment, *from_pip] if isinstance(line, str)]
    return {r.name: r for r in map(Requirement, lines[:-1])}  # the last is the package: -e .


def test_conda_environment_is_in_step():
    conda = {name: str(r.specifier) for name, r in conda_requirements().items()}
    assert conda.pop("python") == PROJECT["requires-python"]
    assert conda.pop("pip") == ""
    assert conda == {
        CONDA_NAMES.get(name, name): str(requirement.specifier)
        for name, requirement in requirements("book", "test").items()
        if requirement.marker is None  # conda cannot restrict a package to a platform
    }


def test_every_requirement_is_pinned_within_its_bounds():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    normal = {re.sub(r"[-_.]+", "-", pin.name.lower()): str(pin.specifier) for pin in pins}
    assert all(re.fullmatch(r"==[\w.]+", version) for version in normal.values()), "exact, public"
    for name, requirement in requirements(
        "book", "test", "gpu", "teach", "download", "cluster"
    ).items():
        version = normal[name.lower()].removeprefix("==")
        assert requirement.specifier.contains(version), f"{requirement} pinned to {version}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "book/how-to-run.md"])
def test_commands_of_the_documents_exist(name):
    text = (ROOT / name).read_text()
    missing = set(re.findall(r"\bmake ([a-z-]+)\b", text)) - TARGETS - {"it"}
    assert not missing, f"{name} names make targets that do not exist: {missing}"
    for script in re.findall(r"\btools/[a-z_]+\.py\b", text):
        assert (ROOT / script).is_file(), f"{name} names {script}"


def test_readme_begins_with_the_two_commands_and_shows_what_make_runs():
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^    (.*?)(?:\s+#.*)?$", readme, re.MULTILINE)
    assert commands[:2] == ["make book", "make test"]
    for part in ("-c constraints.txt -e '.[book,test]'", "--toc book/_toc.yml -W -n --keep-going"):
        assert part in readme
        assert part.replace("-c constraints.txt", "$(CONSTRAINTS)") in MAKEFILE
    [units] = re.findall("^UNITS := (.*)", MAKEFILE, re.MULTILINE)
    fast = '-n 2 --dist loadfile -m "not browser and not slow"'
    for part in ("ruff check .", "ruff format --check .", "tools/links.py _build/html", fast):
        assert part in readme
        assert part in MAKEFILE.replace("$(UNITS)", units)


@pytest.mark.parametrize(
    "command", ["make", "env OMP_NUM_THREADS=2 make", "make OMP_NUM_THREADS=2"]
)
def test_a_number_of_threads_that_the_caller_gave_reaches_all_notebooks(command):
    """Of the Makefile's own, which is 1, those that time code are free."""
    shell = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "FAST", "OMP_"))}
    words = [*command.split(), "-n", "test"]
    done = subprocess.run(words, cwd=ROOT, env=shell, capture_output=True, text=True, check=True)
    [alone] = [line for line in done.stdout.splitlines() if line.endswith(" $alone")]
    assert "--nbval" in alone
    assert ("env -u OMP_NUM_THREADS" in alone) == ("2" not in command)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_well_formed_and_calls_what_exists(path):
    workflow = yaml.safe_load(path.read_text())
    assert {"name", True, "permissions", "jobs"} <= set(workflow)  # YAML reads the key `on` as True
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            for line in step.get("run", "").splitlines():
                if line.startswith("make "):
                    assert line.split()[1] in TARGETS
                if line.startswith(".ci/"):
                    assert (ROOT / line).stat().st_mode & 0o111, f"{line} is not executable"


def test_assignments_are_looked_for_where_the_tool_puts_them():
    tool = (ROOT / "tools" / "assignment.py").read_text()
    [folder] = re.findall(r'"--course", .*default=Path\("([^"]+)"\)', tool)
    texts = [path.read_text() for path in (*WORKFLOWS, ROOT / "CONTRIBUTING.md")]
    lines = re.findall(r".*\bnbgrader generate_assignment .*", "\n".join(texts))
    assert len(lines) == 2
    assert all(f"cd {folder} && nbgrader" in line for line in lines), lines


def test_the_weekly_job_runs_every_value_that_changes_digits():
    """Each alone and, where two libraries compute side by side, at one level and at two."""
    path = ROOT / ".github" / "workflows" / "drift.yml"
    job = yaml.safe_load(path.read_text())["jobs"]["drift"]
    rows = job["strategy"]["matrix"]["include"]
    found = {key: {row.get(key) for row in rows} - {None} for key in rows[-1]}
    assert found["python"] == {"3.11", "3.12", "3.13"}
    assert found["threads"] == {"1", "2", "4"}
    assert found["aten"] == {"default", "avx2", "avx512"}
    assert found["mkl"] == {"AVX2"}
    pairs = {(row.get("aten"), row.get("onednn")) for row in rows} - {(None, None)}
    levels = {("default", "AVX2"), ("avx2", "AVX2"), ("avx512", "AVX2")}
    assert pairs == levels | {(aten, "DEFAULT") for aten, _ in levels}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_what_may_write_runs_nothing_of_ours(path):
    """A tag can be moved to other code; a job that may write must not run code that tests did."""
    workflow = yaml.safe_load(path.read_text())
    assert not {"write", "write-all"} & rights(workflow["permissions"])
    for job in workflow["jobs"].values():
        steps = job["steps"]
        uses = [step["uses"] for step in steps if "uses" in step]
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", use) for use in uses), uses
        if "write" in rights(job.get("permissions", {})):
            assert not any("run" in step or "checkout" in step["uses"] for step in steps)


def rights(permissions):
    return {permissions} if isinstance(permissions, str) else set(permissions.values())


def test_what_the_fast_part_leaves_out_exists():
    printed = python(ROOT / "tests" / "conftest.py", check=True).stdout
    assert {name for name in printed.split() if not (ROOT / name).exists()} == set()
    assert "tests/recurrent" in printed.split()


def test_all_workflows_are_here():
    names = {path.stem for path in WORKFLOWS}
    assert names == {"test", "pages", "links", "drift", "wheels", "download"}


def test_no_other_repository_stands_where_ours_should():
    ours = address.owner_and_name(address.address())
    found = {path.name: address.strays(text, ours) for path, text in address.texts(ROOT).items()}
    assert {name: strays for name, strays in found.items() if strays} == {}


def test_no_machine_path_in_a_tracked_file():
    """A path of the machine it was written on would mean nothing to a reader."""
    forbidden = re.compile(
        r"(?<![\w./-])/(?:home|Users|work|mnt)/\w+|" + re.escape(str(ROOT)) + r"\b"
    )
    found = {
        path.relative_to(ROOT).as_posix(): forbidden.findall(text)
        for path, text in address.texts(ROOT).items()
    }
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_every_data_set_states_its_license():
    table = (ROOT / "LICENSE-data.md").read_text()
    for dataset in data.describe():
        assert f"| {dataset['name']} | {dataset['license']} |" in table


def test_citation_and_changelog_name_the_version_that_is_packaged():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == PROJECT["version"]
    assert PROJECT["urls"]["Changelog"] == f"{address.address()}/blob/main/CHANGELOG.md"
    assert citation["repository-code"] == address.address()
    assert citation["license"][0] == PROJECT["license"]
