"""Checks annotated types and shapes of calls into the package while the tests run, where beartype
is installed, and says which files `make test FAST=1` leaves out: `python tests/conftest.py` prints
them."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
collect_ignore = ["library/made_up_method.py"]  # it adds a method to whoever imports it
# Files and folders that take more than ten seconds of a processor, but for the definitions, their
# derivations and the pairs of chapters. The others take two to three minutes together, collecting
# included.
SLOW = [
    "book/test_download.py",
    "book/test_execute.py",
    "book/test_readme.py",
    "book/test_same_records.py",
    "cli/test_cli.py",
    "kernels",
    "recurrent",
    "lab/analysis/test_parallel.py",
    "lab/benchmarks",
    "lab/claims/test_challenge.py",
    "lab/claims/test_claims.py",
    "lab/claims/test_experiments.py",
    "lab/claims/test_worlds.py",
    "lab/data/test_cloze.py",
    "lab/experiments",
    "lab/gpu",
    "lab/records/test_hostile.py",
    "lab/records/test_offline.py",
    "lab/records/test_records.py",
    "lab/records/test_stale_runs.py",
    "lab/records/test_table.py",
    "lab/test_invariance_figure.py",
    "library/test_made_up_method.py",
    "library/test_modules_graphs.py",
    "library/test_mutants.py",
    "library/test_onnx.py",
    "symbolic/test_geometry.py",
]


if __name__ != "__main__":
    # Here, not in a hook of pytest's: conftest files below this one import the package, and pytest
    # imports those of folders that its command line names before it calls any hook.
    from jaxtyping import install_import_hook

    def checked(root):
        """The library, and those modules of the lab that annotate shapes: the others handle records
        and plans, which checks of every call would slow down three times."""
        for file in (root / "layernorm").rglob("*.py"):
            name = ".".join(file.relative_to(root).with_suffix("").parts)
            of_lab = name.startswith("layernorm.lab.")
            if "jaxtyping" in file.read_text("utf-8") if of_lab else name != "layernorm.__init__":
                yield name.removesuffix(".__init__")

    if find_spec("beartype"):
        import typechecker

        install_import_hook(list(checked(FOLDER.parent)), "typechecker.check")


@pytest.fixture(scope="session")
def threads():
    """As many as torch starts with."""
    import torch  # not above: `make` runs this file, too

    return torch.get_num_threads()


@pytest.fixture(autouse=True)
def same_start(threads):
    """Every test draws the same with the same threads, alone or after others: torch starts from a
    seed of chance, and commands leave the number of threads that they were told. And its first
    calls are checked."""
    import torch

    if find_spec("beartype"):
        typechecker.start()

    torch.manual_seed(0)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Own and published runs lie in folders of the test's own; there are none at first."""
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path / "runs"))
    published = tmp_path / "published"
    monkeypatch.setattr("layernorm.lab.records.published.published_folder", lambda: published)
    return tmp_path


def pytest_configure():
    # Runs that lie in ./runs make no difference, as in `make test`.
    os.environ.setdefault("LAYERNORM_RUNS", str(FOLDER.parent / "_build" / "no-runs"))
    # Programs that tests start find the helpers in this folder, too.
    paths = [str(FOLDER), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def pytest_collection_modifyitems(items):
    slow = {FOLDER / name for name in SLOW}
    for item in items:
        if slow & {item.path, *item.path.parents}:
            item.add_marker("slow")


if __name__ == "__main__":
    print(*(f"{FOLDER.name}/{name}" for name in SLOW))
