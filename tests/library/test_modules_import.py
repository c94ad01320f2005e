"""`import layernorm` is light: torch, numpy and jaxtyping alone; so is all that a machine with a
GPU needs."""

import importlib.metadata
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
from apart import python

import layernorm

PROGRAM = """
import importlib, json, sys
import torch
before = set(sys.modules)
import layernorm
for name in sys.argv[1:]:
    importlib.import_module(name)
loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
json.dump({"loaded": loaded, "names": layernorm.__all__}, sys.stdout)
"""
ALLOWED = {"layernorm", "jaxtyping", "wadler_lindig", "numpy", "typing_extensions"}


def run(*modules: str) -> dict:
    return json.loads(python("-c", PROGRAM, *modules, check=True).stdout)


def foreign(outcome: dict) -> set[str]:
    """Modules that are not Python's own or torch's and do not come along with jaxtyping."""
    return set(outcome["loaded"]) - set(sys.stdlib_module_names) - ALLOWED


def test_importing_the_package_is_light():
    outcome = run()
    assert not foreign(outcome)
    norms = {"LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm", "BatchNorm", "WeightNormLinear"}
    assert norms | {"functional"} <= set(outcome["names"])


def test_the_version_is_that_of_the_installed_distribution(monkeypatch):
    assert layernorm.__version__ == importlib.metadata.version("layernorm")
    with pytest.raises(AttributeError, match=r"^module 'layernorm' has no attribute 'versions'$"):
        layernorm.versions  # noqa: B018
    absent = importlib.metadata.PackageNotFoundError("layernorm")
    monkeypatch.setattr(importlib.metadata, "version", Mock(side_effect=absent))
    with pytest.raises(AttributeError, match="only an installed package has a version"):
        layernorm.__version__  # noqa: B018


def modules_in(*places: str) -> list[str]:
    root = Path(layernorm.__file__).parent.parent
    files = [f for place in places for f in sorted((root / place).rglob("*.py"))]
    names = [".".join(f.relative_to(root).with_suffix("").parts) for f in files]
    return [name.removesuffix(".__init__") for name in names]


# These time the experiments' engine, and need what it needs.
ENGINE = ["layernorm/lab/benchmarks/workers"]


def test_definitions_layers_kernels_and_benchmarks_are_light():
    """Beside torch, NumPy and jaxtyping there is what comes with Triton and torch's operators."""
    needed = {"layernorm.methods", *modules_in("layernorm/recurrent", "layernorm/kernels")}
    needed |= {*modules_in("layernorm/lab/benchmarks")} - {*modules_in(*ENGINE)}
    comes_along = ["torch.library", "triton", "triton.language"]
    if find_spec("triton") is None:
        comes_along = comes_along[:1]
        needed -= {*modules_in("layernorm/recurrent/gpu", "layernorm/kernels")}
    assert len(needed) > 20
    assert foreign(run(*sorted(needed))) <= foreign(run(*comes_along))
