"""The kernels compile for GPUs, whether there is one here or not, into what they should be."""

import os
from pathlib import Path

import pytest
from apart import told


@pytest.fixture(scope="module")
def compiled():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return told(Path(__file__).with_name("kernel_compile.py"), environment)


def test_a_row_stays_in_the_registers(compiled):
    """Of the steps, the longest rows, backward, may leave a few values behind."""
    for found in compiled["norms"].values():
        assert found["spilled"] == 0
        assert found["registers"] <= 65536 // 2  # two at once
    for case, found in compiled["steps"].items():
        spilled = found["spilled"]
        assert spilled <= (256 if case == "backward per_gate 4096 bf16" else 0), (case, spilled)
        assert found["registers"] <= 65536, case


def test_memory_is_read_and_written_16_bytes_at_a_time(compiled):
    for case, found in compiled["norms"].items():
        assert found["wide"] >= 4, case
    for case, found in compiled["steps"].items():
        if " 64 " not in case:  # rows shorter than that for a warp
            assert found["wide"] >= 3, case


def test_the_backward_pass_of_a_norm_fetches_the_next_tile_early(compiled):
    for case, found in compiled["norms"].items():
        if case.startswith("backward") and "sm_75" not in case:  # which cannot
            assert found["asynchronous"], case
            assert found["shared"] <= 4 * 4096 * 4 + 2048, case  # as launch.backward counts
