"""torch.compile (one graph, forward and backward) and torch.export of every module."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from library import graph_capture


@pytest.fixture(scope="module")
def results():
    """One process for all cases: starting torch's tracer takes longer than a case."""
    program = Path(graph_capture.__file__)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", graph_capture.jobs())
def test_captured_module_is_the_module(results, case):
    assert results[case] == "ok"
