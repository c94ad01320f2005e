"""The kernels compile for GPUs, whether there is one here or not, into what they should be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def compiled():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    program = Path(__file__).with_name("kernel_compile.py")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_falls_out_of_the_registers(compiled):
    assert {case: found["spilled"] for case, found in compiled.items() if found["spilled"]} == {}
    assert max(found["registers"] for found in compiled.values()) <= 65536 // 2  # two at once


def test_memory_is_read_and_written_16_bytes_at_a_time(compiled):
    for case, found in compiled.items():
        assert found["wide"] >= 4, case


def test_the_backward_pass_fetches_the_next_tile_early(compiled):
    for case, found in compiled.items():
        if case.startswith("backward"):
            assert found["asynchronous"], case
            assert found["shared"] <= 4 * 4096 * 4 + 2048, case  # as launch.backward counts
