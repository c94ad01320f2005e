"""The costs of the normalizations: every method is there, right, and comes out as a table."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from layernorm.benchmarks import norms
from layernorm.methods import METHODS


def test_every_method_has_a_benchmark():
    assert list(norms.BENCHMARKS) == list(METHODS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["forward", "backward", "forward+backward"])
def test_definitions_and_torch_pass_the_gate_at_an_awkward_shape(dtype, mode):
    rows = norms.rows(
        shape=(3, 7, 13), modes=[mode], dtype=dtype, rounds=6, sample_seconds=1e-6, roof=1e9
    )
    assert {row.status for row in rows} == {"measured"}
    assert len(rows) == 2 * len(METHODS)


def test_quick_gives_a_table_with_a_row_per_implementation():
    shown = norms.quick(methods=["layer"], shape=(2, 3, 4), rounds=6, sample_seconds=1e-6)
    assert list(shown["mode"]) == ["forward"] * 2 + ["forward+backward"] * 2
    assert list(shown["implementation"]) == ["definition", "torch"] * 2
    assert (shown["µs"] > 0).all()
    assert (shown["ratio"][shown["implementation"] == "torch"] == 1).all()


def test_a_broken_definition_is_not_timed(monkeypatch):
    from layernorm import functional

    right = functional.rms_norm
    monkeypatch.setattr(functional, "rms_norm", lambda x, *rest: right(x + 0.01, *rest))
    bench = norms.BENCHMARKS["rms"]
    oracle = lambda x, weight: right(x, x.shape[1:], weight)  # noqa: E731
    monkeypatch.setitem(norms.BENCHMARKS, "rms", replace(bench, oracle=oracle))
    definition, torchs_own = norms.rows(["rms"], (3, 7, 13), modes=["forward"], rounds=6)
    assert definition.status.startswith("wrong")
    assert definition.seconds is None
    assert torchs_own.status == "measured"


def test_an_unknown_method_is_named():
    with pytest.raises(ValueError, match=r"methods: expected some of none, batch, .* got 'laier'"):
        norms.rows(["laier"])


def test_the_harness_imports_without_what_a_gpu_machine_lacks():
    # sympy is not on the list: torch's own gradients import it
    blocked = ["pandas", "scipy", "sklearn", "matplotlib", "pooch", "typer", "beartype"]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked})); "
        "from layernorm.benchmarks import norms; "
        "rows = norms.rows(['layer'], (2, 3, 4), rounds=6, sample_seconds=1e-6); "
        "assert {row.status for row in rows} == {'measured'}, rows"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
