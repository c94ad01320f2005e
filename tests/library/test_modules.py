"""The modules take the place of torch's: same constructor, keys, numbers; moved, copied, saved."""

import copy
import inspect
import pickle
from typing import NamedTuple

import pytest
import torch
from library.oracle import (
    OVERFLOWING,
    assert_close,
    assert_no_zeros,
    assert_rounded,
    draw,
    exact,
    hard_rows,
)
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm as torchs_weight_norm

import layernorm


class Pair(NamedTuple):
    """One of our modules beside torch's, built by the same arguments, and an input's shape."""

    ours: type
    torchs: object
    arguments: tuple
    options: dict
    shape: tuple[int, ...]


def _name(value) -> str:
    """A case's name in pytest's output."""
    if not isinstance(value, Pair):
        return str(value)
    torchs = value.torchs.__name__
    return f"{torchs.strip('_')}-{value.arguments}-{'-'.join(value.options)}"


def _torchs_weight_norm_linear(*arguments, **options):
    return torchs_weight_norm(nn.Linear(*arguments, **options))


FORGETTING = {"track_running_stats": False}
TRACKING = {"affine": True, "track_running_stats": True}
PAIRS = [
    Pair(layernorm.LayerNorm, nn.LayerNorm, (5,), {}, (3, 5)),
    Pair(layernorm.LayerNorm, nn.LayerNorm, ([4, 5], 1e-3), {"bias": False}, (3, 4, 5)),
    Pair(layernorm.LayerNorm, nn.LayerNorm, ((5,), 0.1, False), {}, (2, 4, 5)),
    Pair(layernorm.RMSNorm, nn.RMSNorm, (5,), {}, (3, 4, 5)),
    Pair(layernorm.RMSNorm, nn.RMSNorm, ((4, 5), 0.1, False), {}, (3, 4, 5)),
    Pair(layernorm.GroupNorm, nn.GroupNorm, (2, 8), {}, (3, 8)),
    Pair(layernorm.GroupNorm, nn.GroupNorm, (2, 4, 0.1), {"affine": False}, (3, 4, 5, 2)),
    Pair(layernorm.InstanceNorm, nn.InstanceNorm1d, (4,), {}, (3, 4, 5)),
    Pair(layernorm.InstanceNorm, nn.InstanceNorm2d, (4,), TRACKING, (3, 4, 5, 2)),
    Pair(layernorm.InstanceNorm, nn.InstanceNorm3d, (4, 0.1, 0.3), TRACKING, (3, 4, 5, 2, 2)),
    Pair(layernorm.BatchNorm, nn.BatchNorm1d, (4,), {}, (3, 4)),
    Pair(layernorm.BatchNorm, nn.BatchNorm1d, (4, 0.1, None), {}, (3, 4, 5)),
    Pair(layernorm.BatchNorm, nn.BatchNorm2d, (4, 1e-3, 0.3), {"affine": False}, (3, 4, 5, 2)),
    Pair(layernorm.BatchNorm, nn.BatchNorm3d, (4,), FORGETTING, (2, 4, 5, 2, 2)),
    Pair(layernorm.WeightNormLinear, _torchs_weight_norm_linear, (5, 3), {}, (4, 5)),
    Pair(layernorm.WeightNormLinear, _torchs_weight_norm_linear, (5, 3, False), {}, (2, 4, 5)),
]  # fmt: skip
if "bias" in inspect.signature(nn.GroupNorm).parameters:  # older versions of torch lack it
    PAIRS[-2:-2] = [
        Pair(layernorm.GroupNorm, nn.GroupNorm, (2, 8), {"bias": False}, (3, 8, 2)),
        Pair(
            layernorm.InstanceNorm, nn.InstanceNorm1d, (4,), TRACKING | {"bias": False}, (3, 4, 5)
        ),
        Pair(layernorm.BatchNorm, nn.BatchNorm1d, (4,), {"bias": False}, (3, 4)),
    ]
NORMS = [pair for pair in PAIRS if pair.ours is not layernorm.WeightNormLinear]
BACKENDS = ("auto", "torch", "reference")


def _randomize(module: nn.Module) -> nn.Module:
    """No gain of 1, no bias of 0, no fresh running statistics."""
    with torch.no_grad():
        for seed, t in enumerate((*module.parameters(), *module.buffers())):
            if t.is_floating_point():
                t.copy_(0.5 + draw(*t.shape, seed=seed).abs())
    return module


def _make(pair: Pair, **more) -> tuple[nn.Module, nn.Module]:
    """Ours with torch's state loaded into it."""
    torchs = _randomize(pair.torchs(*pair.arguments, **pair.options, dtype=torch.float64))
    ours = pair.ours(*pair.arguments, **pair.options, dtype=torch.float64, **more)
    assert ours.load_state_dict(torchs.state_dict()) == ([], [])
    return ours, torchs


def _run(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Output and gradients of two training passes and one evaluation, and the state afterwards."""
    results = []
    for training in (True, True, False):
        module.train(training)
        module.zero_grad()
        x = x.detach().requires_grad_()
        y = module(x)
        y.backward(draw(*y.shape, seed=9).to(y))
        # in the order of their sizes: torch's weight normalization names parameters differently
        parameters = sorted(module.parameters(), key=lambda p: (p.dim(), p.numel()))
        results += [y, x.grad, *(p.grad for p in parameters)]
        x = x + 1
    return results + [b.clone() for b in module.buffers()]


COMPUTED = [(p, b) for p in NORMS for b in BACKENDS] + [(p, None) for p in PAIRS[-2:]]


@pytest.mark.parametrize(("pair", "backend"), COMPUTED, ids=_name)
def test_same_numbers_as_torch(pair, backend):
    ours, torchs = _make(pair, **({"backend": backend} if backend else {}))
    x = draw(*pair.shape, mean=1.0, std=2.0)
    for got, expected in zip(_run(ours, x), _run(torchs, x), strict=True):
        if backend in ("reference", None):
            assert_close(got, expected, 1e-12)
        else:
            assert torch.equal(got, expected)


HARD = [
    Pair(layernorm.LayerNorm, nn.LayerNorm, (4,), {}, (4, 4)),
    Pair(layernorm.GroupNorm, nn.GroupNorm, (1, 4), {}, (4, 4)),
    Pair(layernorm.RMSNorm, nn.RMSNorm, (4,), {}, (4, 4)),
]


@pytest.mark.parametrize("pair", HARD, ids=_name)
def test_auto_is_torchs_operator_where_reference_gives_the_true_value_or_nan(pair):
    """On a CPU, for rows whose squares overflow, and rows that vary little beside their mean."""
    centered = pair.ours is not layernorm.RMSNorm
    auto, torchs = pair.ours(*pair.arguments), pair.torchs(*pair.arguments)
    reference = pair.ours(*pair.arguments, backend="reference")
    definition = copy.deepcopy(reference).double()
    eps = torch.finfo(torch.float32).eps if auto.eps is None else auto.eps
    for x in (OVERFLOWING.float() * 1e19, hard_rows(4)):
        torch.testing.assert_close(auto(x), torchs(x), rtol=0, atol=0, equal_nan=True)
        rows = [exact(row, eps, centered) for row in x.tolist()]
        true = torch.tensor(rows, dtype=torch.float64)
        got = reference(x)
        if got.isnan().any():
            assert_no_zeros(got, true)
        else:
            assert_rounded([got], lambda x=x: [definition(x.double())], expected=[true])


@pytest.mark.parametrize("pair", NORMS, ids=_name)
def test_same_constructor_printed_form_and_class(pair):
    mine = inspect.signature(pair.ours).parameters
    torchs = inspect.signature(pair.torchs).parameters
    for name, parameter in torchs.items():
        assert (mine[name].kind, mine[name].default) == (parameter.kind, parameter.default), name
    ours, theirs = pair.ours(*pair.arguments), pair.torchs(*pair.arguments)
    assert ours.extra_repr() == theirs.extra_repr()
    base = {nn.LayerNorm, nn.RMSNorm, nn.GroupNorm} & set(pair.torchs.__mro__)
    base |= {nn.modules.batchnorm._NormBase} & set(pair.torchs.__mro__)
    assert isinstance(ours, tuple(base))


def test_weight_norm_linear_is_constructed_and_printed_like_linear():
    mine = inspect.signature(layernorm.WeightNormLinear).parameters
    torchs = inspect.signature(nn.Linear).parameters
    assert [(p.name, p.default) for p in mine.values()] == [
        (p.name, p.default) for p in torchs.values()
    ]
    assert layernorm.WeightNormLinear(2, 3).extra_repr() == nn.Linear(2, 3).extra_repr()


@pytest.mark.parametrize("pair", PAIRS, ids=_name)
def test_state_loads_both_ways(pair):
    ours, torchs = _make(pair)
    if pair in NORMS:
        assert list(ours.state_dict()) == list(torchs.state_dict())
    again = pair.torchs(*pair.arguments, **pair.options, dtype=torch.float64)
    assert again.load_state_dict(_randomize(ours).state_dict()) == ([], [])
    x = draw(*pair.shape)
    assert_close(again.eval()(x), ours.eval()(x), 1e-12)


def test_weight_norm_linear_inside_a_model_loads_torchs_keys():
    ours = nn.Sequential(
        layernorm.WeightNormLinear(4, 3), nn.ReLU(), layernorm.WeightNormLinear(3, 2)
    )
    torchs = nn.Sequential(
        torchs_weight_norm(nn.Linear(4, 3)), nn.ReLU(), torchs_weight_norm(nn.Linear(3, 2))
    )
    assert list(ours.state_dict())[:3] == ["0.weight_g", "0.weight_v", "0.bias"]
    ours.load_state_dict(torchs.state_dict())
    x = torch.randn(5, 4)
    torch.testing.assert_close(ours(x), torchs(x))
    _randomize(ours)
    torchs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x), torchs(x))


def test_weight_norm_linear_starts_as_linear():
    torch.manual_seed(3)
    ours = layernorm.WeightNormLinear(7, 4)
    torch.manual_seed(3)
    linear = nn.Linear(7, 4)
    x = torch.randn(5, 7)
    torch.testing.assert_close(ours(x), linear(x))
    assert torch.equal(ours.weight_v, linear.weight)


@pytest.mark.parametrize("pair", PAIRS, ids=_name)
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_are_equal_and_independent(pair, how):
    ours, _ = _make(pair)
    twin = copy.deepcopy(ours) if how == "deepcopy" else pickle.loads(pickle.dumps(ours))
    x = draw(*pair.shape)
    assert torch.equal(twin(x), ours(x))
    assert repr(twin) == repr(ours)
    before = ours(x)
    for p in twin.parameters():
        p.data.add_(1)
    assert torch.equal(ours(x), before)


@pytest.mark.parametrize("pair", PAIRS, ids=_name)
def test_moves_between_types_and_devices(pair):
    ours, torchs = _make(pair)
    state = copy.deepcopy(ours).float().state_dict()
    expected = copy.deepcopy(ours).float().eval()(draw(*pair.shape).float())
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert ours.to(dtype)(draw(*pair.shape).to(dtype)).dtype == dtype
    ours.half()
    assert {p.dtype for p in ours.parameters()} <= {torch.float16}
    on_meta = pair.ours(*pair.arguments, **pair.options, device="meta")
    assert {t.device.type for t in (*on_meta.parameters(), *on_meta.buffers())} <= {"meta"}
    x = torch.empty(*pair.shape, device="meta")
    assert on_meta.eval()(x).shape == torchs.float().eval().to("meta")(x).shape
    on_cpu = on_meta.to_empty(device="cpu")
    on_cpu.load_state_dict(state)
    assert torch.equal(on_cpu(draw(*pair.shape).float()), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("pair", PAIRS, ids=_name)
def test_moves_to_the_gpu_and_back(pair):
    ours, torchs = _make(pair)
    x = draw(*pair.shape)
    for got, expected in zip(_run(ours.cuda(), x.cuda()), _run(torchs, x), strict=True):
        assert got.device.type == "cuda"
        assert_close(got.cpu(), expected, 1e-10)
    assert {t.device.type for t in ours.cpu().state_dict().values()} <= {"cpu"}


@pytest.mark.parametrize("pair", PAIRS, ids=_name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # torch's own, of its RMS norm kernel
def test_autocast_gives_torchs_types_and_numbers(pair, dtype):
    ours, torchs = (m.float() for m in _make(pair))
    modules = [ours]
    if pair in NORMS:
        modules.append(_make(pair, backend="reference")[0].float())
    x = draw(*pair.shape).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = torchs(x)
        for module in modules:
            y = module(x)
            assert y.dtype == expected.dtype
            # bfloat16 rounds to 2^-9; torch rounds between the affine map's operations as well.
            # In float32: the sums of both sides, of few numbers, in any order.
            assert_close(y, expected, 2**-7 if y.dtype == torch.bfloat16 else 100 * 2**-24)
        y.float().sum().backward()
    assert x.grad.dtype == dtype


def test_reset_parameters_restores_the_start():
    norm = _randomize(layernorm.BatchNorm(3))
    norm.reset_parameters()
    fresh = layernorm.BatchNorm(3)
    assert all(
        torch.equal(a, b)
        for a, b in zip(norm.state_dict().values(), fresh.state_dict().values(), strict=True)
    )
    linear = layernorm.WeightNormLinear(3, 2)
    before = linear.weight_v.clone()
    linear.reset_parameters()
    assert not torch.equal(linear.weight_v, before)
    torch.testing.assert_close(linear.weight, linear.weight_v)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: layernorm.LayerNorm(-1), ValueError, "normalized_shape must not be negative"),
        (lambda: layernorm.RMSNorm((3, -1)), ValueError, r"normalized_shape.*got \(3, -1\)"),
        (lambda: layernorm.LayerNorm(1.5), TypeError, "normalized_shape must be an int.*got 1.5"),
        (lambda: layernorm.GroupNorm(1, -2), ValueError, "num_channels must not be negative"),
        (lambda: layernorm.InstanceNorm(-1), ValueError, "num_features must not be negative"),
        (lambda: layernorm.BatchNorm(-1), ValueError, "num_features must not be negative, got -1"),
        (lambda: layernorm.WeightNormLinear(2, -1), ValueError, "out_features must not be"),
    ],
)
def test_sizes_that_are_none(make, error, message):
    """The annotations' check of the test run may speak first."""
    with pytest.raises(error, match=f"{message}|normalized_shape"):
        make()


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("pair", PAIRS, ids=_name)
def test_scripts_are_refused(pair):
    module = nn.Sequential(pair.ours(*pair.arguments, **pair.options))
    with pytest.raises(
        TypeError, match=f"cannot compile {pair.ours.__name__}; use torch.jit.trace"
    ):
        torch.jit.script(module)
