"""The kernels compile for GPUs, whether there is one here or not, into what they should be."""

import os
from pathlib import Path

import pytest
import torch
import triton
from apart import told

from layernorm.kernels import launch
from layernorm.lab.analysis.compiled import paces

# Arrays of one row, or of one product's weights. All others have a row for each one of the input.
PARAMETERS = {"weight", "bias", "gain", "shift", "gain_c", "shift_c", "w", "first", "second"}

# Backward, Triton 3.6 has every thread copy the statistics of all rows of a tile that it works on,
# which 3.7 shares out: three numbers of four rows, in each of three stages.
NARROW = 36 if triton.__version__.startswith("3.6.") else 15

# Barriers in the code of a norm at most, by width. In two reductions backward would have 3 more.
BARRIERS = {
    "forward": {256: 5, 1000: 14, 1024: 14, 4096: 8, 8192: 8, 16384: 8, 65536: 12},
    "backward": {256: 17, 1000: 9, 1024: 9, 4096: 21, 8192: 21, 16384: 21, 65536: 4},
}
# Of a recurrent kernel: with the norms of the paper, and with one for each gate or 4096 units.
OF_STEPS = {"forward": (17, 50), "backward": (8, 28)}
OF_LOOPS = {"forward": (33, 60), "backward": (32, 45)}


def of(program: str) -> dict:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return told(Path(__file__).with_name(program), environment)


@pytest.fixture(scope="module")
def compiled():
    return of("kernel_compile.py")


def test_a_row_stays_in_the_registers(compiled):
    """Backward, rows of 16384 may leave a few values behind, beside the sums for gain and bias,
    which take half of all registers (RMS normalization has one sum); two may be left with a
    residual; and of an LSTM's steps, the longest rows leave eight at most."""
    for case, found in compiled["norms"].items():
        most = 8 if case.startswith("backward") and "residual" in case else 0
        if case.startswith("backward 16384") and "rms" not in case:
            most = 128
        assert found["spilled"] <= most, (case, found["spilled"])
    for case, found in compiled["steps"].items():
        spilled = found["spilled"]
        long_lstm = case.startswith("backward") and " 4096 " in case and "gru" not in case
        assert spilled <= (8 if long_lstm else 0), (case, spilled)
        assert found["registers"] * found["warps"] * 32 <= 65536, case


def test_the_sums_of_a_norm_are_read_wide_and_stay_in_registers(compiled):
    """Of long rows, and of the programs' shares of the gradients of gain and bias."""
    for case, found in compiled["sums"].items():
        assert found["spilled"] == 0, (case, found)
        assert found["wide loads"] > 0, (case, found)
        assert found["registers"] * found["warps"] * 32 <= 65536, case


def test_as_many_norms_run_at_once_as_planned(compiled):
    """Forward, two programs of rows of 16384, where one waits for memory and the other does not."""
    for case, found in compiled["norms"].items():
        wanted = found["planned"] if case.startswith("backward") else 2
        assert found["programs"] >= wanted, (case, found)


def test_a_norm_moves_no_values_between_threads_but_for_sums(compiled):
    """Only each row's statistics, and the sums of a program at its end, change their layout."""
    for case, found in compiled["norms"].items():
        assert found["conversions"] <= 4, case
        if case.startswith("forward"):
            assert found["shared"] <= 128, (case, found["shared"])


def test_threads_wait_for_each_other_no_more_often_than_their_sums_need(compiled):
    for case, found in compiled["norms"].items():
        direction, width, *_ = case.split()
        assert found["barriers"] <= BARRIERS[direction][int(width)], (case, found["barriers"])
    for kind, most in (("steps", OF_STEPS), ("loops", OF_LOOPS)):
        for case, found in compiled[kind].items():
            direction, form, *_ = case.split()
            if direction in most:
                few, many = most[direction]
                limit = many if form == "per_gate" or " 4096 " in case else few
                assert found["barriers"] <= limit, (case, found["barriers"])


def test_instructions_leave_time_for_memory(compiled):
    """A multiprocessor of an H100 issues 35 instructions for a thread while 4 bytes of an element
    arrive or leave (3.35 TB/s, 132 multiprocessors, 1.755 GHz), 53 for 6 bytes."""
    for case, found in compiled["norms"].items():
        if "bf16 sm_90" in case and " 1000 " not in case and "residual" not in case:
            most = 24 if case.startswith("forward") else 32
            assert found["each"] <= most, (case, found["each"])


def test_memory_bounds_the_time_on_an_h200(compiled):
    """Its memory is faster: 24.7 and 37 instructions, for the width as well that is no power of
    two. A row of 65536 is read in two passes, of which `each` is the longer one."""
    for case, found in compiled["norms"].items():
        direction, width, kind, arch, *norm = case.split()
        if (kind, arch, norm) == ("bf16", "sm_90", ["layer"]):
            least = paces(found | {"width": int(width)}, direction, 4096)
            assert least["issue, µs"] < least["bytes, µs"], (case, least)


def test_paces_by_hand():
    """A million rows of 1024, 2.1 GB in and out: 0.9 ms. 20 instructions an element: 0.72 ms."""
    least = paces({"width": 1024, "each": 20.0}, "forward", 2**20)
    assert least["bytes, µs"] == pytest.approx(2**30 * 4 / 4.8e6)
    assert least["issue, µs"] == pytest.approx(2**30 * 20 / (132 * 128 * 1755))
    backward = paces({"width": 1024, "each": 20.0}, "backward", 2**20, "fp32")
    assert backward["bytes, µs"] == pytest.approx(3 * least["bytes, µs"])


def test_the_cache_keeps_what_is_read_again(compiled):
    """Forward, a row that stays on chip is read once, and gain and bias by every program. The first
    of two passes leaves the row in the cache, and the second makes room."""
    for case, found in compiled["norms"].items():
        direction, width, *_ = case.split()
        if direction == "forward":
            loads, first = found["wide loads"] + found["narrow loads"], found["evicted first"]
            again = first if int(width) > 16384 else 0
            assert loads == again + first + found["evicted last"], (case, found)
            assert min(first, found["evicted last"]) > 0, case


def test_memory_is_read_and_written_16_bytes_at_a_time(compiled):
    """Also where 8 divides a width and 16 does not, of which Triton would know nothing."""
    for case, found in compiled["norms"].items():
        direction, width, *_ = case.split()
        several = NARROW if int(width) <= 1024 else 15  # rows in a tile
        narrow = several if direction == "backward" else 0  # 3 to 5 of a row, in each stage
        assert found["wide loads"] >= 4, (case, found)
        assert found["narrow loads"] <= narrow, (case, found)
        assert found["wide stores"] >= 1, case
    for case, found in compiled["steps"].items():
        if " 64 " not in case:  # rows shorter than that for a warp
            assert found["wide loads"] + found["wide stores"] >= 3, case
    for case, found in compiled["loops"].items():  # the weights, and the product's other factor
        assert found["wide loads"] >= found["product"] > 0, (case, found)


def test_all_steps_in_one_kernel_stay_on_chip(compiled):
    """No register spills, the weights and a tile fit beside each other, and each of the two waits
    of a step asks the GPU's memory, not a multiprocessor's own cache."""
    for case, found in compiled["loops"].items():
        assert found["spilled"] == 0, (case, found)
        assert found["programs"] >= 1, (case, found)  # or the launch would be refused
        assert found["shared"] <= 227 * 1024, (case, found["shared"])
        assert found["waits"] == 2, (case, found["waits"])
        assert not found["asynchronous"], case  # nothing is fetched before the others have written


def test_the_backward_pass_of_a_norm_fetches_the_next_tile_early(compiled):
    for case, found in compiled["norms"].items():
        if case.startswith("backward"):
            if "sm_75" in case:  # which cannot copy into shared memory by itself
                continue
            assert found["asynchronous"] == (found["stages"] > 1), case
            assert found["stages"] == 3 or "16384" in case, case


def test_a_program_has_at_most_1024_threads_on_amd(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    for direction in ("forward", "backward"):
        for width in (1, 256, 1024, 16384, 32768, 65536):
            for itemsize in (2, 4, 8):
                cut = launch.tile(width, direction, itemsize)
                compiled = launch.options(cut, direction, itemsize)
                assert set(compiled) == {"num_warps"}  # no limit of registers there
                assert 64 * compiled["num_warps"] <= 1024


def test_kernels_compile_for_amd():
    """A program's threads and memory are within an MI300's limits, and its registers suffice."""
    for case, found in of("kernel_amd_compile.py").items():
        assert found["code"] > 0, case
        assert found["threads"] <= 1024, (case, found["threads"])
        assert found["shared"] <= 64 * 1024, (case, found["shared"])
        assert found["spilled"] == 0, (case, found["spilled"])


def test_rows_beyond_2_31_elements_are_found():
    """Where a row begins is an offset of 64 bits. One product alone adds 32 bits, to the gradient
    of the state, an array of a single step's rows."""
    for case, found in of("kernel_offsets_compile.py").items():
        narrow = set(found["i32"]) - PARAMETERS
        assert narrow == ({"dh"} if case.startswith("loop backward") else set()), (case, narrow)
        assert {"y", "dy", "partial"} & set(found["i64"]), case
