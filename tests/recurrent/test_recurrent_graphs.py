"""torch.compile (one graph, forward and backward), torch.export and torch.jit.trace of the
recurrent layers; autocast and double backward."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from library.oracle import assert_rounded, draw
from recurrent import recurrent_capture
from recurrent.recurrent_reference import LAYERS, NETS, VARIANTS, shaken, usable
from torch.nn.utils.rnn import PackedSequence


@pytest.fixture(scope="module")
def results():
    """One process for all cases: starting torch's tracer takes longer than a case."""
    program = Path(recurrent_capture.__file__)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", recurrent_capture.jobs())
def test_captured_module_is_the_module(results, case):
    usable(case.split()[2])
    assert results[case] == "ok"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("kind", "backend"), NETS)
def test_autocast(kind, dtype, backend):
    """States and outputs stay in float32 and close to it, whatever the input's type; gradients
    arrive in the parameters' type. Packed sequences with rows that end early as well."""
    usable(backend)
    module = shaken(LAYERS[kind](3, 16, 2, bidirectional=True, backend=backend))
    x = draw(9, 3).float()
    sizes = torch.tensor([3, 3, 2, 1])
    exact = copy.deepcopy(module).double()
    exact.backend = "reference"
    outputs = []
    for given in (x, x.to(dtype)):
        module.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            y, last = module(PackedSequence(given, sizes))
        tensors = [y.data, *(last if isinstance(last, tuple) else (last,))]
        assert all(t.dtype == torch.float32 for t in tensors)
        outputs.append(y.data)
        y.data.square().sum().backward()
        assert all(p.grad.dtype == torch.float32 and p.grad.any() for p in module.parameters())
    assert_rounded(outputs, lambda: [exact(PackedSequence(x.double(), sizes))[0].data] * 2, dtype)


FORMS = [("lstm", {"variant": v}) for v in VARIANTS]
FORMS += [("lstm", {"proj_size": 2}), ("gru", {}), ("rnn", {})]


@pytest.mark.parametrize(("kind", "options"), FORMS, ids=str)
def test_second_derivatives_of_the_definition(kind, options):
    module = shaken(LAYERS[kind](2, 3, dtype=torch.float64, backend="reference", **options))
    names = [name for name, _ in module.named_parameters()]

    def run(x, *parameters):
        named = dict(zip(names, parameters, strict=True))
        packed = PackedSequence(x, torch.tensor([2, 1]))
        y, last = torch.func.functional_call(module, named, (packed,))
        return y.data, *(last if isinstance(last, tuple) else (last,))

    inputs = [t.detach().requires_grad_() for t in (draw(3, 2), *module.parameters())]
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)
