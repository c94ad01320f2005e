"""The recurrent kernels as part of torch and of the layers: registration, derivatives, autocast,
what is refused, and when `backend="auto"` takes them."""

import pytest
import torch
from kernels.kernel_cases import DEVICE, ON_GPU
from recurrent.recurrent_fused import BF16, F32, Case, results, run, tensors
from torch._subclasses import FakeTensorMode

import layernorm
from layernorm.kernels import speeds
from layernorm.recurrent import definition, fused, gpu, layers
from layernorm.recurrent.gpu import operators

pytestmark = ON_GPU
KINDS = pytest.mark.parametrize("form", ["paper", "gru"])


def net(form: str, dtype=torch.float64, **options):
    case = Case("gru" if form == "gru" else "lstm", form, (2, 1), units=3, inputs=2)
    return case._replace(**options), *tensors(case._replace(**options), dtype, gpu)


def of_operator(form: str, keep: bool):
    _, x, states, w = net(form, F32)
    nothing = (None, None)
    h0, c0 = (*states, None)[:2]
    vectors = (w.b, *(w.ln_ih or nothing), *(w.ln_hh or nothing), *getattr(w, "ln_c", nothing))
    inputs = (x, h0, c0, w.w_ih, w.w_hh, *vectors)
    return *inputs, torch.tensor([2, 1]), 1e-5, form, False, F32, keep


@pytest.mark.parametrize("form", ["paper", "cell_only", "gru"])
def test_operators_keep_torchs_rules(form):
    """torch.library.opcheck: schema, shapes without data, autograd."""
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operators._recurrence, of_operator(form, True), test_utils=tests)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("form", ["paper", "cell_only", "gru"])
def test_no_rows_give_what_the_shapes_say(form, keep):
    """A graph made for sizes that are not known yet asks for every result by its place."""
    x, *others, sizes, eps, name, reverse, kind, _ = of_operator(form, keep)
    given = (x.detach()[:0], *others, sizes[:0], eps, name, reverse, kind, keep)
    got = operators._recurrence(*given)
    with FakeTensorMode(allow_non_fake_inputs=True):
        expected = operators._recurrence(*given)
    assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in expected]
    assert torch.equal(got[1], others[0])
    assert others[1] is None or torch.equal(got[2], others[1])


@KINDS
def test_second_derivatives_are_the_definitions(form):
    given, found = net(form), []
    for module in (gpu, definition):
        y = run(module, *given)[0].square().sum()
        (first,) = torch.autograd.grad(y, given[1], create_graph=True)
        found.append([first, torch.autograd.grad(first.square().sum(), given[1])[0]])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
    assert found[0][1].any()


@KINDS
def test_what_was_captured_without_gradients_has_them(form):
    """Nothing was kept for them: they are the definition's."""
    found = []
    for keep in (False, True):
        inputs = of_operator(form, keep)
        y, *_ = operators._recurrence(*inputs)
        found.append(torch.autograd.grad(y.square().sum(), [inputs[0], inputs[4]]))
    for without, kept in zip(*found, strict=True):
        torch.testing.assert_close(without, kept, rtol=1e-5, atol=1e-6)
        assert kept.any()


@KINDS
def test_autocast(form):
    """Products in its type, the rest and the results in float32."""
    case, x, states, w = net(form, F32)
    exact = results(definition, case, x, states, w)
    with torch.autocast(DEVICE, dtype=BF16):
        got = results(gpu, case, x, states, w)
        low = results(definition, case, x, states, w)
    assert [g.dtype for g in got] == [F32] * len(got)
    for g, rounded, e in zip(got, low, exact, strict=True):
        size = float(e.norm())
        assert float((g - e).norm()) <= max(2 * float((rounded - e).norm()), 2**-8 * size)
    assert not torch.equal(got[0], exact[0])


@pytest.fixture
def on_gpu(monkeypatch):
    """The layers ask these kernels here, too, where there is no GPU."""
    if DEVICE == "cpu":
        monkeypatch.setattr(layers, "cpu", gpu)


@pytest.mark.parametrize("layer", [layernorm.LayerNormLSTM, layernorm.LayerNormGRU])
def test_layers_use_them(layer, on_gpu):
    found = []
    for backend in ("fused", "reference"):
        torch.manual_seed(0)
        module = layer(2, 3, bidirectional=True, dtype=torch.float64, backend=backend)
        module = module.to(DEVICE)
        x = [torch.randn(n, 2, dtype=torch.float64).to(DEVICE) for n in (1, 3)]
        packed = torch.nn.utils.rnn.pack_sequence(x, enforce_sorted=False)
        output, _ = module(packed)
        output.data.square().sum().backward()
        found.append([output.data, *(p.grad for p in module.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_no_warning_where_the_kernels_would_not_be_used(on_gpu, monkeypatch):
    """Nobody misses kernels that are missing on a machine where they are no faster."""
    monkeypatch.setattr(gpu, "missing", lambda: "they are missing")
    monkeypatch.setattr(gpu, "faster", lambda *_: False)
    fused.warn_once.cache_clear()
    layer, x = layernorm.LayerNormLSTM(2, 3).to(DEVICE), torch.zeros(4, 1, 2).to(DEVICE)
    layer(x)
    monkeypatch.setattr(gpu, "faster", lambda *_: True)
    with pytest.warns(fused.SlowPathWarning, match="they are missing"):
        layer(x)


def test_what_is_refused(monkeypatch):
    asked = ("lstm", "cuda", F32, False)
    assert gpu.unsupported(*asked) is None

    def reason(k, value):
        return gpu.unsupported(*asked[:k], value, *asked[k + 1 :])

    assert reason(0, "rnn") == "there is no fused rnn; the definition computes it"
    assert "int64" in reason(2, torch.int64)
    assert "proj_size" in reason(3, True)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "run on CUDA devices, and the tensors are on cpu" in reason(1, "cpu")
    assert gpu.missing() is None
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert "pip install 'layernorm[gpu]'" in gpu.missing()


def test_other_refusals(monkeypatch):
    case, x, states, w = net("paper")
    with pytest.raises(ValueError, match=r"variant must be one of paper, .* got 'papre'"):
        run(gpu, case._replace(form="papre"), x, states, w)
    monkeypatch.setattr(operators, "LONGEST", 2)
    with pytest.raises(ValueError, match=r'hidden_size must be at most 2 .*, got 3; .*"reference"'):
        run(gpu, case, x, states, w)
    if DEVICE == "cpu":
        monkeypatch.setattr(operators.launch, "INTERPRETED", False)
        with pytest.raises(ValueError, match=r"must be on a CUDA device .*, got one on cpu"):
            run(gpu, case, x, states, w)


def test_an_interpreter_that_fails_with_this_numpy(monkeypatch):
    monkeypatch.setattr(operators.launch, "INTERPRETED", True)
    monkeypatch.setattr(operators.launch.triton, "__version__", "3.6.0")
    monkeypatch.setattr(operators.launch.np, "__version__", "2.4.6")
    case, x, states, w = net("paper")
    with pytest.raises(RuntimeError, match=r"Triton 3\.6\.0 .*triton>=3\.7 or numpy<2"):
        run(gpu, case, x, states, w)


class OnGpu(torch.Tensor):
    is_cuda = True


def test_auto_asks_for_the_speeds(monkeypatch):
    found: list[dict] = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Made-up GPU")
    monkeypatch.setattr(speeds, "entries", lambda: found)

    def measured(ratio, shape=(10, 8, 32, 32)) -> dict:
        return {"operation": "lstm", "device": "Made-up GPU", "dtype": "float32", "gradient": True,
                "shape": list(shape), "ratio_high": ratio}  # fmt: skip

    def faster(rows=80, units=32, kind="lstm", dtype=F32):
        speeds.ratios.cache_clear()
        x = torch.zeros(rows, 3, dtype=dtype).as_subclass(OnGpu)
        return gpu.faster(kind, x, units)

    assert not faster()
    found.append(measured(0.2))
    assert faster()
    assert not gpu.faster("lstm", torch.zeros(80, 3), 32)  # on a CPU
    assert not faster(rows=81)
    assert not faster(rows=0)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert faster(rows=81)  # in a graph, for which all rows that were measured count
    found.append(measured(2.0, (9, 9, 32, 32)))
    assert not faster(rows=81)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
    del found[-1]
    assert not faster(units=33)
    assert not faster(kind="gru")
    assert not faster(dtype=torch.float64)
    with torch.no_grad():  # training was measured
        assert not faster()
    found.append(measured(2.0, (10, 16, 64, 64)))
    assert faster()
    assert not faster(rows=160, units=64)
    speeds.ratios.cache_clear()
