"""Little is installed on a machine that is had for half an hour, and it is enough."""

import os
import re
import subprocess

import torch
from lab.benchmarks.benching import ROOT, python

from layernorm.lab.gpu.tests import FILES, command

# sympy is not on the list of the benchmarks': torch's own compiler imports it
MISSING = [
    *("typer", "click", "pandas", "pydantic", "scipy", "sklearn", "matplotlib", "pooch"),
    *("beartype", "tqdm", "yaml", "hypothesis", "jupytext", "nbformat", "IPython", "packaging"),
]
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({MISSING})); "


def test_benchmarks_need_no_more_than_torch_triton_numpy_and_jaxtyping(folders):
    script = WITHOUT + (
        "from lab.benchmarks.benching import tiny; "
        "from layernorm.lab.gpu import __main__ as entry, bench, steps; "
        "[plan('cuda') for plan in steps.STEPS.values()]; "
        "steps.STEPS['small'] = lambda device: tiny(); "
        "given = ['bench', '--here', '--device', 'cpu', '--steps', 'small', '--runs', "
        f"{str(folders)!r}]; "
        "assert entry.main(given) == 0; "
        "print(*bench.told(['small'], 'cpu', entry.Path(given[-1])), sep='\\n')"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("layer forward 4x32 float32: definition ")
    assert done.stdout.endswith("\ncomplete\n")


def run_gpu_tests(*words):
    """pytest with these words, for the tests that need a GPU."""
    kept = [name for name in MISSING if name != "packaging"]  # pytest needs it
    script = WITHOUT.replace(repr(MISSING), repr(kept)) + (
        f"import pytest; sys.exit(pytest.main({[*command('', spread=False)[3:-1], *words]}))"
    )
    done = python(script, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_that_need_a_gpu_run_without_the_extras():
    """Where there is no GPU they are skipped; an import that fails would be an error."""
    files = "tests/recurrent/test_layers.py", "tests/lab/gpu/test_graphs_on_a_gpu.py"
    said = run_gpu_tests("-rs", *files)
    if not torch.cuda.is_available():
        assert all(re.search(rf"SKIPPED \[\d+\] {file}", said) for file in files), said


def test_the_tests_that_need_a_gpu_are_found_without_the_extras():
    printed = run_gpu_tests("--collect-only")
    found = [line for line in printed.splitlines() if "::" in line]
    assert any("test_the_gpus_numbers" in line for line in found)
    assert any("test_moves_to_the_gpu_and_back" in line for line in found)
    assert any("test_the_gpu_clock_flushes_and_times" in line for line in found)
    assert any("test_graphs_have_the_losses_of_single_launches" in line for line in found)
    files = {line.partition("::")[0] for line in found}
    assert files <= set(FILES)
    assert not any("lab/experiments" in line for line in found)


def shown(*words):
    """The commands that make would give, as from a shell, also where make started the tests."""
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", *words, "PYTHON=some-python"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, env=shell)
    return done.stdout.split()


def test_make_calls_it_with_the_machines_own_python():
    begin = ["some-python", "-m", "layernorm.lab.gpu"]
    assert shown("bench-gpu") == [*begin, "bench"]
    assert shown("bench-gpu", "OUT=out", "MINUTES=8", "FROM=a.tar.gz", "STEPS=layer choice") == [
        *(*begin, "bench", "--out", "out", "--minutes", "8", "--from", "a.tar.gz"),
        *("--steps", "layer", "choice"),
    ]
    assert shown("experiments-gpu", "DRY=1") == [*begin, "train", "--pretend"]
