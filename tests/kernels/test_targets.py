"""The kernels compile for the GPUs on which the book is run, and fit on them: T4 (compute
capability 7.5), A100 (8.0), RTX 30 and 40 (8.6, 8.9), H100 (9.0), B200 (10.0)."""

import os
from pathlib import Path

import pytest
import triton
from apart import told

# Kilobytes that a program may have on chip, by NVIDIA's tables.
MOST = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227}

# Bytes of a thread that registers have no room for, as found with Triton 3.7 and with 3.6: the most
# on any of these GPUs. All other recurrent kernels leave none.
SPILLED = {
    "step backward paper 4096": 4,
    "step backward per_gate 4096": 4,
    "step backward carried 4096": 4,
    "step backward per_gate 4096 fp32": 28,
    "step backward carried 4096 fp32": 32,
    "loop forward joint 256": 20,
    "loop forward per_gate 256": 20,
    "loop forward gru 256": 16,
    "loop backward gru 256": 12,
}
SPILLED_BY_3_6 = {
    "step backward per_gate 4096 fp32": 20,
    # of its own accord ptxas takes 80 and 128 registers of the 255 that a thread may have
    "loop backward gru 128": 4,
    "loop backward gru 256": 24,
}
if triton.__version__.startswith("3.6."):
    SPILLED = SPILLED_BY_3_6

# Of a step, on all of these GPUs: barriers at most, loads and stores of 16 bytes at least.
STEPS = {
    "forward paper 512": (17, 5, 3),
    "forward carried 512": (17, 5, 3),
    "forward joint 512": (17, 5, 3),
    "forward per_gate 512": (44, 5, 3),
    "forward cell_only 512": (8, 5, 3),
    "forward gru 512": (17, 7, 2),
    "backward paper 512": (5, 7, 8),
    "backward carried 512": (5, 7, 8),
    "backward joint 512": (5, 7, 8),
    "backward per_gate 512": (14, 7, 8),
    "backward cell_only 512": (2, 7, 8),
    "backward gru 512": (8, 8, 5),
    "forward paper 4096": (23, 20, 8),
    "forward gru 4096": (21, 20, 6),
    "backward paper 4096": (19, 34, 20),
    "backward joint 4096": (19, 34, 20),
    "backward per_gate 4096": (28, 34, 20),
    "backward carried 4096": (19, 34, 20),
    "backward gru 4096": (18, 24, 13),
}

# Barriers of all steps in one kernel.
LOOPS = {
    "forward paper": 33,
    "forward gru": 33,
    "forward joint": 33,
    "forward per_gate": 60,
    "backward paper": 26,
    "backward gru": 29,
}


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
    """Backward, an LSTM's step of 4096 units leaves at most four bytes of a thread behind, in
    float32 32. All steps in one kernel leave at most 20 with Triton 3.7, forward on an RTX 40,
    where a sum is normalized, and 24 with 3.6, those of a GRU backward on a B200."""
    for case, found in recurrent(compiled):
        what, direction, form, _, kind, _ = case.split()
        name = f"{what} {direction} {form} {found['units']}"
        if name.endswith("4096") and kind == "fp32":
            name += " fp32"
        assert found["spilled"] <= SPILLED.get(name, 0), (case, found["spilled"])


def test_threads_of_a_recurrent_kernel_wait_for_each_other_as_rarely_everywhere(compiled):
    for case, found in recurrent(compiled):
        what, direction, form, *_ = case.split()
        name = f"{direction} {form}"
        most = LOOPS[name] if what == "loop" else STEPS[f"{name} {found['units']}"][0]
        assert found["barriers"] <= most, (case, found["barriers"])


def test_recurrent_kernels_read_and_write_16_bytes_at_a_time(compiled):
    """A step of 512 units has four values of a row in a thread, which are 16 bytes in float32 only.
    All steps in one kernel read the weights and the product's other factor so."""
    for case, found in recurrent(compiled):
        what, direction, form, *_ = case.split()
        loads, stores = found["wide loads"], found["wide stores"]
        if what == "loop":
            assert loads >= found["product"] > 0, (case, loads, found["product"])
            continue
        _, least_loads, least_stores = STEPS[f"{direction} {form} {found['units']}"]
        assert loads >= least_loads, (case, loads)
        assert stores >= least_stores, (case, stores)


def recurrent(compiled):
    """The cases but those of norms, and what was found."""
    return [(k, found) for k, found in compiled["kernels"].items() if not k.startswith("norm")]


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
