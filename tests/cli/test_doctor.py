import importlib.metadata

import pytest
import torch
from typed import layernorm

from layernorm.cli import doctor
from layernorm.cli.doctor import Line, examine
from layernorm.lab import records
from layernorm.recurrent import cpu
from layernorm.recurrent.cpu import binding, build, operators

pytestmark = pytest.mark.usefixtures("folders")
CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}


def found(topic: str, name: str) -> Line:
    (line,) = [line for line in examine() if (line.topic, line.name) == (topic, name)]
    return line


def test_it_tells_what_is_here():
    assert found("versions", "torch").says == str(torch.__version__)
    assert found("machine", "threads").says == str(torch.get_num_threads())
    assert found("data", "digits").says == "embedded"
    assert found("records", "runs").says == "none"
    result = layernorm("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    for line in examine():
        assert line.says in result.stdout


def test_a_missing_compiler_is_told(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert found("machine", "g++").says == "not found; torch.compile needs one on a CPU"


def test_a_missing_extra_says_how_to_get_it(monkeypatch):
    version = importlib.metadata.version

    def without_pooch(name):
        if name == "pooch":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    assert found("extras", "data").says == "installed"
    monkeypatch.setattr("importlib.metadata.version", without_pooch)
    assert found("extras", "data").says == "lacks pooch: pip install 'layernorm[data]'"


@pytest.mark.parametrize("backend", ["auto", "reference", "torch"])
def test_backends_are_tried(monkeypatch, backend):
    """Not only looked for: one that computes something else is a problem, and so is a crash."""
    assert found("backends", backend) == Line("backends", backend, "works")
    from layernorm import kernels

    right = kernels.run

    def wrong(operation, chosen, x, *args):
        if chosen == backend:
            return right(operation, chosen, x, *args) + 1e-6
        return right(operation, chosen, x, *args)

    monkeypatch.setattr(kernels, "run", wrong)
    line = found("backends", backend)
    assert (line.says, line.problem) == ("differs from the definition", True)
    result = layernorm("doctor")
    assert result.exit_code == 1
    assert f"✗ {backend}" in result.stdout
    assert result.stderr == "Error: what is marked ✗ is broken\n"
    monkeypatch.setattr(kernels, "run", None)
    line = found("backends", backend)
    assert line.says.startswith("fails: ")
    assert line.problem


@pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))
def test_the_compiled_recurrent_path_is_tried(monkeypatch):
    assert found("backends", "recurrent").says.startswith(f"compiled for {build.instruction_set()}")
    right = operators.lstm
    monkeypatch.setattr(operators, "lstm", lambda *a: tuple(t + 1e-6 for t in right(*a)))
    line = found("backends", "recurrent")
    assert (line.says, line.problem) == ("the compiled path differs from the definition", True)
    monkeypatch.setattr(operators, "lstm", None)
    line = found("backends", "recurrent")
    assert line.says.startswith("the compiled path fails: ")
    assert line.problem


def test_why_the_recurrent_layers_run_their_definition(monkeypatch):
    reason = build.BuildError("no C++ compiler")
    monkeypatch.setattr(binding, "library", lambda: reason)
    line = found("backends", "recurrent")
    assert line.says == "the layers run their definition, slower: no C++ compiler"
    assert not line.problem


def test_the_recurrent_path_on_a_gpu_is_tried_where_there_is_one(monkeypatch):
    if not torch.cuda.is_available():
        assert found("backends", "recurrent on a GPU").says == found("backends", "triton").says
        monkeypatch.setattr(doctor, "_why_no_triton", lambda: None)
        line = doctor._recurrent_on_gpu()  # tried, although it cannot work
        assert line.says.startswith("the path in Triton fails: ")
        assert line.problem
        monkeypatch.setattr(doctor, "_fused_error", lambda device: "")
    assert "works" in doctor._recurrent_on_gpu().says


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which it is tried")
def test_why_there_is_no_triton(monkeypatch):
    says = found("backends", "triton").says
    assert "need a CUDA device" in says or "pip install 'layernorm[gpu]'" in says
    monkeypatch.setattr("layernorm.cli.doctor.find_spec", lambda name: None)
    line = found("backends", "triton")
    assert (line.says, line.problem) == ("not installed: pip install 'layernorm[gpu]'", False)


def test_stale_and_damaged_records_are_told():
    path = records.save(records.new(CONFIG, {"final": {"a": 1.0}}, {}, ["layernorm.methods"]))
    assert found("records", "digits book").says == "1 run"
    changed = records.Record(CONFIG, {"final": {"a": 1.0}}, digest="method 0")
    records.save(changed)
    line = found("records", "digits book")
    assert "1 of 1 runs were made before the code they depend on changed" in line.says
    assert not line.problem
    path.write_text("{")
    line = found("records", "damaged")
    assert path.name in line.says
    assert line.problem
