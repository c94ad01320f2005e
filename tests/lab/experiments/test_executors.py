"""Sweeps by the executors of other engines, by the code that how-to-run shows."""

import ast
import importlib.util
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest
from apart import python

from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.sweep import carry_out

PAGE = Path(__file__).parents[3] / "book" / "how-to-run.md"
SCRIPT = """
from lab.experiments import toy_experiment
toy_experiment.register()
from layernorm.lab.experiments import sweep as engine
from layernorm.lab.experiments.planning import Sweep

def carry_out(*given, **more):
    outcome = engine.carry_out(*given, **more)
    print(sorted((f.config.arm, f.config.seed, f.reason) for f in outcome.failed.values()))

def main():
    sweep = Sweep("toy", "faulty", ("none", "broken", "layer"), (0, 1), by_heart=False)
    {before}
{shown}

if __name__ == "__main__":
    main()
"""
DASK = "from dask.distributed import LocalCluster; nodes = LocalCluster({place})"
PLACE = 'n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None'
# The package of each engine; what stands before its code; what of the code is another place or
# number here.
ENGINES = {
    "distributed": (DASK.format(place=PLACE), ('Client("scheduler:8786")', "nodes, Client(nodes)")),
    "joblib": ("", ("get_reusable_executor(8)", "get_reusable_executor(2)")),
    "submitit": ("", ("Jobs(100)", "Jobs(2)")),  # without Slurm, processes of this machine
}


def shown():
    """The page's code for each of these packages."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    named = {"distributed": "dask.distributed", "joblib": "joblib", "submitit": "submitit"}
    return {name: [b for b in blocks if word in b] for name, word in named.items()}


@pytest.mark.parametrize("name", ENGINES)
def test_the_code_shown_gives_the_records_of_one_process(toy, tmp_path, name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    [code] = shown()[name]
    before, (there, here) = ENGINES[name]
    assert code.count(there) == 1
    file = tmp_path / "script.py"
    code = textwrap.indent(code.replace(there, here), "    ")
    file.write_text(SCRIPT.format(before=before, shown=code))
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "TOY_EXPERIMENT": "1", "OMP_NUM_THREADS": "1"}
    done = python(file, env=os.environ | path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failed = ast.literal_eval(done.stdout.splitlines()[-1])
    assert [(arm, seed) for arm, seed, _ in failed] == [("broken", 0), ("broken", 1)]
    assert all("RuntimeError: the toy is broken" in reason for *_, reason in failed)
    found = finished("toy")
    plan = Sweep("toy", "faulty", ("none", "layer"), (0, 1), by_heart=False)
    plain = carry_out(plan, workers=1, root=tmp_path / "plain").done
    assert found.keys() == plain.keys()
    for key, record in found.items():
        assert record.result == plain[key].result
        assert record.digest == plain[key].digest
        assert record.environment["threads"] == 1
