"""The kernels compile for the GPUs on which the book is run, and fit on them: T4 (compute
capability 7.5), A100 (8.0), RTX 30 and 40 (8.6, 8.9), H100 (9.0), B200 (10.0)."""

import os
from pathlib import Path

import pytest
from apart import told

# Kilobytes that a program may have on chip, by NVIDIA's tables.
MOST = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227}


@pytest.fixture(scope="module")
def compiled():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return told(Path(__file__).with_name("kernel_targets.py"), environment)


def test_every_kernel_fits_on_chip(compiled):
    """A launch that asks for more would end with an error of Triton's. The longest rows of a norm
    are fetched ahead only as far as there is room."""
    for case, found in compiled["kernels"].items():
        arch = int(case.split()[-1])
        assert found["shared"] <= MOST[arch] * 1024, (case, found["shared"])
        assert found["registers"] * found["warps"] * 32 <= 65536, case


def test_recurrent_kernels_keep_their_values_in_registers(compiled):
    """Those of a step all of them; a loop over steps left at most eight of a thread behind, in all
    forms on all of these GPUs."""
    for case, found in compiled["kernels"].items():
        if not case.startswith("norm"):
            assert found["spilled"] <= (64 if case.startswith("loop") else 0), (case, found)


def test_units_whose_weights_stay_on_chip(compiled):
    """Before compute capability 8.0 half precision takes four bytes, as float32 does."""
    assert compiled["units"] == {
        "75 fp32": 128, "75 fp16": 128, "75 bf16": 128,
        "80 fp32": 256, "80 fp16": 512, "80 bf16": 512,
        "86 fp32": 256, "86 fp16": 512, "86 bf16": 512,
        "89 fp32": 256, "89 fp16": 512, "89 bf16": 512,
        "90 fp32": 512, "90 fp16": 1024, "90 bf16": 1024,
        "100 fp32": 512, "100 fp16": 1024, "100 bf16": 1024,
    }  # fmt: skip
