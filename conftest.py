"""Where there is no GPU, Triton's kernels are tested in Triton's interpreter, which has to be
chosen before anything imports Triton. What a machine has not installed is not collected: a GPU
machine with torch, Triton, NumPy, jaxtyping and pytest can run `pytest -m gpu`."""

import os
from importlib.util import find_spec

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Programs, which turn the interpreter off.
collect_ignore_glob = ["tests/**/kernel_*compile.py", "tests/kernels/kernel_targets.py"]
if find_spec("triton") is None:  # platforms that have none
    collect_ignore_glob += [
        "layernorm/kernels/[!_s]*.py",
        "layernorm/recurrent/gpu/[!_]*.py",
        "tests/kernels/*.py",
        "tests/recurrent/gpu/*.py",
    ]
REST = ("beartype", "pydantic", "pooch", "typer", "sympy", "yaml", "hypothesis", "pandas", "scipy")
if not all(map(find_spec, REST)):  # then the library and its kernels alone, and their benchmarks
    collect_ignore_glob += [
        "tools/*",
        "layernorm/__main__.py",
        "layernorm/cli/*",
        "layernorm/lab/*",
        "layernorm/symbolic/*",
        "tests/book/*",
        "tests/browser/*",
        "tests/cli/*",
        "tests/lab/analysis/*",
        "tests/lab/benchmarks/[!bcm]*",
        "tests/lab/claims/*",
        "tests/lab/data/*",
        "tests/lab/experiments/*",
        "tests/lab/gpu/test_[!g]*",
        "tests/lab/records/*",
        "tests/lab/test_*.py",
        "tests/recurrent/cpu/*",
        "tests/symbolic/*",
        "tests/test_imports.py",
        "tests/typechecker.py",
        "tests/typed.py",
    ]
if not find_spec("hypothesis"):
    collect_ignore_glob += ["tests/kernels/test_operators.py", "tests/library/test_functional.py"]
