"""The kernels as part of torch: derivatives, autocast, registration, modules, bad input."""

import pytest
import torch
from apart import python
from kernels.kernel_cases import DEVICE, KERNELS, ON_GPU, arguments, short_blocks
from library.oracle import assert_close, assert_rounded, draw
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import layernorm
from layernorm import functional, kernels
from layernorm.kernels import launch
from layernorm.kernels.layer_norm import add_layer_norm, layer_norm
from layernorm.kernels.rms_norm import add_rms_norm, rms_norm

pytestmark = ON_GPU
NAMES = pytest.mark.parametrize("name", KERNELS)
MODULES = {"layer_norm": layernorm.LayerNorm, "rms_norm": layernorm.RMSNorm}


def _leaves(name: str, shape: tuple, dtype=torch.float64, residual: bool = False):
    x, parameters = arguments(name, shape)
    terms = [x, draw(*shape, seed=3)] if residual else [x]
    return [t.to(DEVICE, dtype).requires_grad_() for t in (*terms, *parameters)]


@NAMES
def test_first_and_second_derivatives(name):
    inputs = _leaves(name, (2, 3), residual=True)

    def call(x, residual, *parameters):
        return KERNELS[name][1](x, residual, (3,), *parameters, 1e-2)

    assert gradcheck(call, inputs, fast_mode=True)
    assert gradgradcheck(call, inputs, fast_mode=True)


@NAMES
def test_a_gradient_penalty(name):
    """A derivative of derivatives, in types that are mixed."""
    results = []
    for f in (KERNELS[name][0], KERNELS[name][2]):
        x, *parameters = _leaves(name, (4, 5), torch.float32)
        x = x.detach().bfloat16().requires_grad_()
        y = f(x, (5,), *parameters, 1e-2)
        (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        dx.float().square().sum().backward()
        results.append([t.grad for t in (x, *parameters) if t.grad is not None])
    for got, expected in zip(*results, strict=True):
        assert_close(got, expected, 2**-6)  # two roundings to bfloat16 on both sides


@NAMES
def test_only_what_is_wanted_is_computed(name):
    kernel = KERNELS[name][0]
    for frozen in (slice(0, 1), slice(1, None), slice(2, None)):
        leaves = _leaves(name, (5, 7))
        for t in leaves[frozen]:
            t.requires_grad_(False)
        free = [t for t in leaves if t.requires_grad]
        got = torch.autograd.grad(kernel(leaves[0], (7,), *leaves[1:], 1e-5).square().sum(), free)
        y = KERNELS[name][2](leaves[0], (7,), *leaves[1:], 1e-5)
        for g, e in zip(got, torch.autograd.grad(y.square().sum(), free), strict=True):
            assert_close(g, e, 1e-12)
    with torch.no_grad():
        assert kernel(leaves[0], (7,), *leaves[1:], 1e-5).grad_fn is None


@NAMES
def test_the_sum_or_the_norm_alone_has_a_gradient(name):
    for chosen in (0, 1):
        x, residual, *parameters = leaves = _leaves(name, (5, 7), residual=True)
        out = KERNELS[name][1](x, residual, (7,), *parameters, 1e-5)[chosen]
        s = x + residual
        right = (KERNELS[name][2](s, (7,), *parameters, 1e-5), s)[chosen]
        wanted = leaves if chosen == 0 else leaves[:2]
        got = torch.autograd.grad(out.square().sum(), wanted)
        for g, e in zip(got, torch.autograd.grad(right.square().sum(), wanted), strict=True):
            assert_close(g, e, 1e-12)


@NAMES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_autocast_gives_float32(name, dtype):
    """As torch's own norms do on CUDA devices; of bfloat16 inputs without rounding the result."""
    x, *parameters = _leaves(name, (5, 7), torch.float32)
    x = x.detach().to(dtype).requires_grad_()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = MODULES[name](7, backend="triton").to(DEVICE)(x)
        z = KERNELS[name][0](x, (7,), *parameters, 1e-5)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert y.dtype == z.dtype == expected
    exact = [t.double() for t in parameters]
    assert_rounded([z], lambda: [KERNELS[name][2](x.double(), (7,), *exact, 1e-5)], torch.float32)
    z.square().sum().backward()
    assert x.grad.dtype == dtype
    assert parameters[0].grad.dtype == torch.float32


@NAMES
def test_registered_operators(name):
    """Their fakes, schemas and gradients, as torch examines them."""
    operator = getattr(torch.ops.layernorm, name).default
    x, residual, *parameters = _leaves(name, (3, 2, 5), torch.float32, residual=True)
    bias = parameters[1] if len(parameters) > 1 else None
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for r, keep in ((residual, True), (None, False)):
        rest = (1, 1e-5, torch.float32, keep)
        inputs = [None if t is None else t.detach() for t in (x, r, parameters[0], bias)]
        torch.library.opcheck(operator, (*inputs, *rest), test_utils=tests)
    with torch.device("meta"):
        y = MODULES[name](5, backend="triton")(torch.empty(3, 5))
    assert (y.shape, y.is_meta) == ((3, 5), True)


@NAMES
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, of func
def test_transforms_take_the_definition(name):
    def loss(f):
        return lambda x: f(x, (5,), eps=1e-2).square().mul(torch.arange(5, device=DEVICE)).sum()

    kernel, added, definition = KERNELS[name]
    x = draw(4, 5).to(DEVICE)
    for transform in (torch.func.grad, torch.func.hessian, lambda f: torch.func.vmap(f)):
        assert_close(transform(loss(kernel))(x), transform(loss(definition))(x), 1e-12)
    y, total = torch.func.vmap(lambda x: added(x, x, (5,), eps=1e-2))(x)
    assert torch.equal(total, x + x)
    assert_close(y, definition(x + x, (5,), eps=1e-2), 1e-12)


@NAMES
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
def test_forward_derivatives_are_the_definitions(name, learned):
    kernel, _, definition = KERNELS[name]
    x, tangent = draw(4, 5).to(DEVICE), draw(4, 5, seed=1).to(DEVICE)
    weight = draw(5, seed=2).to(DEVICE).requires_grad_(learned)
    tangents = []
    for f in (kernel, definition):
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(x, tangent), (5,), weight, eps=1e-2)
            tangents.append(forward_ad.unpack_dual(y).tangent)
    assert_close(*tangents, 1e-12)


@NAMES
def test_many_gradients_at_once_are_those_one_by_one(name):
    kernel = KERNELS[name][0]
    x = draw(4, 5).to(DEVICE).requires_grad_()
    weight = draw(5, seed=2).to(DEVICE).requires_grad_()
    y, dy = kernel(x, (5,), weight, eps=1e-2), draw(3, 4, 5, seed=1).to(DEVICE)
    at_once = torch.autograd.grad(y, (x, weight), dy, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(y, (x, weight), g, retain_graph=True) for g in dy]
    for got, expected in zip(at_once, zip(*single, strict=True), strict=True):
        assert_close(got, torch.stack(expected), 1e-12)


@NAMES
def test_modules_use_the_kernel(name, monkeypatch):
    calls = []
    right = launch.forward
    monkeypatch.setattr(launch, "forward", lambda *a: calls.append(a[0].shape) or right(*a))
    module = MODULES[name]((3, 5), backend="triton").to(DEVICE)
    x = draw(4, 3, 5).to(DEVICE, torch.float32)
    y = module(x)
    assert calls == [(4, 3, 5)]
    definition = MODULES[name]((3, 5), backend="reference").to(DEVICE, torch.float64)
    assert_rounded([y], lambda: [definition(x.double())])
    MODULES[name](5, backend="auto").to(DEVICE)(x)
    assert len(calls) == 1


@NAMES
def test_grad_mode_within_inference_mode(name):
    module = MODULES[name](5, backend="triton").to(DEVICE)
    x = draw(4, 5).to(DEVICE, torch.float32)
    expected = module(x).detach()
    with torch.inference_mode(), torch.enable_grad():
        assert torch.equal(module(x), expected)


def test_partial_sums_of_every_program_count(monkeypatch):
    """More programs than one step of adding up takes."""
    monkeypatch.setattr(launch, "TILE", {"forward": 8, "backward": 8})
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip(15, 0))
    x, w, b = _leaves("layer_norm", (41, 5))
    y = layer_norm(x, (5,), w, b)
    got = torch.autograd.grad(y.square().sum(), (x, w, b))
    expected = torch.autograd.grad(functional.layer_norm(x, (5,), w, b).square().sum(), (x, w, b))
    for g, e in zip(got, expected, strict=True):
        assert_close(g, e, 1e-12)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@NAMES
@pytest.mark.parametrize("blocks", [False, True], ids=["resident", "in blocks"])
def test_cuda_graphs(name, blocks, monkeypatch):
    """Forward and backward are captured, and replayed on other numbers."""
    if blocks:
        short_blocks(monkeypatch)
    leaves = _leaves(name, (9, 37), torch.float32)

    def step(leaves):
        y = KERNELS[name][0](leaves[0], (37,), *leaves[1:], 1e-5)
        return [y, *torch.autograd.grad(y.square().sum(), leaves)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(leaves)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(leaves)
    with torch.no_grad():
        leaves[0].copy_(draw(9, 37, seed=9))
    graph.replay()
    others = [leaf.detach().clone().requires_grad_() for leaf in leaves]  # of this stream
    for got, expected in zip(captured, step(others), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_another_gpu_than_the_current():
    x = draw(5, 37).to("cuda:1", torch.float32).requires_grad_()
    y = layer_norm(x, (37,))
    y.square().sum().backward()
    assert_rounded([y.cpu()], lambda: [functional.layer_norm(x.cpu().double(), (37,))])
    assert x.grad.device == x.device


BAD = [
    (lambda x: layer_norm(x, (3,)), ValueError, r"got \(3,\) for x of shape \(2, 4\)"),
    (lambda x: layer_norm(x.int(), (4,)), TypeError, "x must be float16, .* got torch.int32"),
    (lambda x: layer_norm(x, (4,), x[0, :3]), ValueError, r"weight must have shape \(4,\)"),
    (lambda x: layer_norm(x, (4,), x[0].half()), TypeError, "weight must have the input's type"),
    (lambda x: layer_norm(x, (4,), eps=-1.0), ValueError, "eps must be non-negative"),
    (lambda x: layer_norm([x], (4,)), TypeError, "x must be a torch.Tensor, got list"),
    (lambda x: rms_norm(x, (4,), x[0].to("meta")), ValueError, "weight must be on the input's dev"),
    (lambda x: add_layer_norm(x, None, (4,)), TypeError, "residual must be a torch.Tensor"),
    (lambda x: add_rms_norm(x, x[0], (4,)), ValueError, r"residual must have the shape.*expand_as"),
    (lambda x: add_rms_norm(x, x.half(), (4,)), TypeError, "residual must have the type of x"),
    (lambda x: add_rms_norm(x, x.to("meta"), (4,)), ValueError, "residual must be on the input's"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.zeros(2, 4, device=DEVICE))


def test_a_cpu_tensor_outside_the_interpreter(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", False)
    leaf = torch.zeros(2, 4, requires_grad=True)
    for x in (leaf, leaf.detach()):
        with pytest.raises(
            ValueError, match=r"computes on CUDA devices.*on cpu.*TRITON_INTERPRET=1"
        ):
            layernorm.LayerNorm(4, backend="triton")(x)


def test_an_interpreter_that_fails_with_this_numpy(monkeypatch):
    launch.check_interpreter("3.6.0", "2.3.5")
    launch.check_interpreter("3.7.1", "2.4.6")
    monkeypatch.setattr(launch.triton, "__version__", "3.6.0")
    monkeypatch.setattr(launch.np, "__version__", "2.4.0rc1")
    monkeypatch.setattr(launch, "INTERPRETED", True)
    with pytest.raises(RuntimeError, match=r"Triton 3\.6\.0 .*NumPy 2\.4.*triton>=3\.7 or numpy<2"):
        layernorm.LayerNorm(4, backend="triton")(torch.zeros(2, 4))


def test_operations_without_a_kernel():
    x = torch.zeros(2, 4, 3)
    for module in (layernorm.GroupNorm(2, 4, backend="triton"),
                   layernorm.InstanceNorm(4, backend="triton"),
                   layernorm.BatchNorm(4, backend="triton")):  # fmt: skip
        with pytest.raises(
            ValueError, match=r'"triton" has no .*_norm, only layer_norm and rms_norm'
        ):
            module(x)
    with pytest.raises(ValueError, match='"triton" has no batch_norm'):
        layernorm.BatchNorm(4, backend="triton")(x, mask=torch.ones(2, 3, dtype=torch.bool))


def test_triton_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"not installed.*pip install 'layernorm\[gpu\]'"):
        layernorm.LayerNorm(3, backend="triton")
    layernorm.LayerNorm(3)


def test_nothing_is_imported_before_it_is_needed():
    program = """
import sys, layernorm, torch
for backend in ("auto", "torch", "reference", "triton"):
    layer = layernorm.LayerNorm(3, backend=backend)
    if backend != "triton":
        layer(torch.zeros(2, 3)).sum().backward()
unneeded = {"triton", "sympy", "layernorm.lab.records", "layernorm.kernels.launch"}
print(sorted(unneeded & set(sys.modules)))
"""
    assert python("-c", program, check=True).stdout == "[]\n"
