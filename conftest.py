"""Where there is no GPU, Triton's kernels are tested in Triton's interpreter, which has to be
chosen before anything imports Triton."""

import os
from importlib.util import find_spec

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
collect_ignore_glob = ["tests/**/kernel_*compile.py"]  # programs, which turn the interpreter off
if find_spec("triton") is None:  # platforms that have none
    collect_ignore_glob += [
        "layernorm/kernels/[!_s]*.py",
        "layernorm/recurrent/gpu/[!_]*.py",
        "tests/kernels/*.py",
        "tests/recurrent/gpu/*.py",
    ]
