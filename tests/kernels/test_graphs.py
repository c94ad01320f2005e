"""torch.compile (one graph, forward and backward) and torch.export of what the kernels compute."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import kernel_capture
from kernels.kernel_cases import ON_GPU

pytestmark = ON_GPU


@pytest.fixture(scope="module")
def results():
    """One process for all cases: starting torch's tracer takes longer than a case."""
    program = Path(kernel_capture.__file__)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", kernel_capture.jobs())
def test_captured_kernels_are_the_kernels(results, case):
    assert results[case] == "ok"
