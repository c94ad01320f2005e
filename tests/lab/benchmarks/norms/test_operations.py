"""The costs of the normalizations: every method is there, right, and comes out as a table."""

import re
from dataclasses import replace
from itertools import product

import pytest
import torch
from lab.benchmarks.benching import CPU, FEW, python

from layernorm.lab.benchmarks import measure as core
from layernorm.lab.benchmarks import norms
from layernorm.lab.benchmarks.norms.case import OperationCase
from layernorm.lab.benchmarks.norms.operations import at, least_bytes
from layernorm.methods import METHODS

MODES = ["forward", "backward", "forward+backward"]


def measure(operation, shape, **fields):
    names = ("definition", "torch")
    fields = {"implementations": names, "source": operation} | FEW | fields
    return core.measure(OperationCase(operation.name, shape, **fields), roof=1e9)


def test_every_method_has_a_benchmark():
    assert list(norms.OPERATIONS) == [*METHODS, "residual"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_definitions_and_torch_pass_the_gate_at_an_awkward_shape(dtype, mode):
    rows = norms.rows(norms.OPERATIONS, (3, 7, 13), modes=[mode], dtype=dtype, roof=1e9, **FEW)
    count = sum(len(operation.implementations) for operation in norms.OPERATIONS.values())
    assert [row.status for row in rows] == ["measured"] * count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", norms.OPERATIONS)
def test_definitions_pass_in_half_precision(name, dtype):
    size = at(name, 6, 77)
    rows = measure(norms.OPERATIONS[name], size, dtype=dtype, mode="forward+backward")
    assert rows[0].status == "measured"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["dyt", "derf"])
def test_gradients_of_single_numbers_may_cancel(name, dtype):
    """One sum over all elements, which may come out small beside its terms."""
    for seed, size in product(range(20), [(1, 16), (4, 16)]):
        (definition, torchs) = measure(
            norms.OPERATIONS[name], size, dtype=dtype, mode="backward", seed=seed
        )
        assert definition.status == "measured", seed
        assert not re.search("alpha|shift", torchs.status), seed
        assert torchs.status == "measured" or dtype != "float32", seed


@pytest.mark.parametrize("slip", [1.001, 0.0, float("nan")])
def test_a_wrong_gradient_of_a_single_number_is_seen(slip):
    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx, alpha):
            return alpha.clone()

        @staticmethod
        def backward(ctx, grad):
            return slip * grad

    one = norms.OPERATIONS["dyt"]
    wrong = lambda x, alpha, **others: one.oracle(x, Off.apply(alpha), **others)  # noqa: E731
    off = replace(one, implementations={**one.implementations, "definition": wrong})
    for seed in range(5):
        status = measure(off, (4, 16), mode="backward", seed=seed)[0].status
        assert status.startswith("wrong: gradient of alpha is off by"), seed


def test_rows_of_elements_as_each_benchmark_has_them():
    assert {name: at(name, 96, 40) for name in norms.OPERATIONS} == {
        **dict.fromkeys(norms.OPERATIONS, (96, 40)),
        "weight": (40, 96),
        "instance": (3, 32, 40),
    }
    assert at("instance", 7, 5) == (7, 1, 5)
    for name in norms.OPERATIONS:
        inputs = norms.OPERATIONS[name].make_inputs(at(name, 96, 40), torch.float32, CPU)
        assert inputs["v" if name == "weight" else "x"].numel() == 96 * 40
    with pytest.raises(ValueError, match="batch normalization of a single case"):
        at("batch", 1, 40)


WITH_TORCHS = [name for name, o in norms.OPERATIONS.items() if "torch" in o.implementations]
# What the gradient reads beside the gradient of the output, and what it writes; for the rest, see
# the tensors themselves.
READ = {
    **dict.fromkeys(norms.OPERATIONS, ("x", "weight")),
    "weight": ("v", "g"),
    "dyt": ("x", "alpha", "weight"),
    "derf": ("x", "alpha", "shift", "weight"),
    "residual": ("sum", "weight"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WITH_TORCHS)
def test_the_byte_model_is_the_size_of_the_tensors_that_are_read_and_written(name, dtype):
    """Each storage counted once: inputs, outputs, gradients as torch's own makes them."""
    benchmark, shape = norms.OPERATIONS[name], at(name, 6, 40)
    torch.manual_seed(0)
    inputs = benchmark.make_inputs(shape, dtype, CPU)
    leaves = {n: t.requires_grad_() for n, t in inputs.items()}
    outputs = benchmark.implementations["torch"](**leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    gradients = torch.autograd.grad(outputs, list(leaves.values()), list(outputs))

    def size(*tensors):
        storages = {t.untyped_storage().data_ptr(): t for t in tensors}
        return sum(t.untyped_storage().nbytes() for t in storages.values())

    read = [outputs[1] if n == "sum" else inputs[n] for n in READ[name]]
    expected = {
        "forward": size(*inputs.values()) + size(*outputs),
        "backward": size(*read) + sum(map(size, outputs)) + size(*gradients),
    }
    expected["forward+backward"] = expected["forward"] + expected["backward"]
    for mode, moved in expected.items():
        (row, *_) = measure(benchmark, shape, dtype=str(dtype)[6:], mode=mode)
        assert row.traffic == moved


def test_quick_gives_a_row_per_implementation_and_a_table():
    rows = norms.quick(methods=["layer"], shape=(2, 3, 4), **FEW)
    assert [row.mode for row in rows] == ["forward"] * 2 + ["forward+backward"] * 2
    shown = norms.table(rows).frame()
    assert list(shown["implementation"]) == ["definition", "torch"] * 2
    assert (shown["µs"].astype(float) > 0).all()
    assert list(shown["ratio to torch [95%]"][shown["implementation"] == "torch"]) == ["1.00"] * 2


def test_an_unknown_method_is_named():
    with pytest.raises(ValueError, match=r"methods: expected one of none, batch, .* got 'laier'"):
        norms.rows(["laier"])


def test_norms_import_without_what_a_gpu_machine_lacks():
    # sympy is not on the list: torch's own gradients import it
    blocked = ["pandas", "scipy", "sklearn", "matplotlib", "pooch", "typer", "beartype"]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked})); "
        "from layernorm.lab.benchmarks import norms; "
        "rows = norms.rows(['layer'], (2, 3, 4), rounds=6, sample_seconds=1e-6); "
        "assert {row.status for row in rows} == {'measured'}, rows"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "numbers"), [("layer", 0), ("dyt", 1), ("derf", 2)])
def test_the_least_bytes_are_those_of_the_tensors(name, numbers):
    """Forward x, y, gain and bias once; backward x, dy, dx, gain and the parameters' gradients."""
    x, parameter = 4 * 5 * 7, 4 * 7
    forward = 2 * x + 2 * parameter + 4 * numbers
    backward = 3 * x + 3 * parameter + 2 * 4 * numbers
    assert least_bytes(name, (5, 7), "forward") == forward
    assert least_bytes(name, (5, 7), "backward") == backward
