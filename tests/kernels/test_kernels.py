"""The fused kernels compute what the definition says: every type, shape and stride."""

import pytest
import torch
from kernels.kernel_cases import (
    DEVICE,
    DTYPES,
    KERNELS,
    ON_GPU,
    agrees,
    arguments,
    case,
    hard,
    overflow,
    short_blocks,
)
from library.oracle import assert_close, draw

from layernorm.kernels import launch

pytestmark = ON_GPU
NAMES = pytest.mark.parametrize("name", KERNELS)
# Several tiles for every program, the last one with rows missing; a tail of columns.
MANY = (63, 131)


@NAMES
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(name, dtype):
    case(name, MANY, dtype, mean=3.0)
    case(name, (5, 37), dtype, residual=draw(5, 37, seed=3))


@NAMES
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_rows_longer_than_a_block(name, dtype, monkeypatch):
    short_blocks(monkeypatch)
    case(name, (3, 71), dtype, mean=3.0, residual=draw(3, 71, seed=3))


@NAMES
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((1, 1), 1), ((3, 1), 1), ((1, 3), 1), ((769,), 1), ((2, 1023), 1), ((3, 2, 5, 7), 2),
     ((2, 3), 2), ((1, 2048), 1)],
)  # fmt: skip
def test_awkward_shapes(name, shape, dims):
    # With a smaller eps little is left of dx at H = 1.
    case(name, shape, torch.float32, dims, std=0.5, eps=1.0)


@NAMES
@pytest.mark.parametrize(("shape", "dims"), [((0, 5), 1), ((3, 0), 1), ((2, 0, 4), 1)])
def test_empty(name, shape, dims):
    kernel, _, definition = KERNELS[name]
    x, parameters = (
        t.to(DEVICE) if isinstance(t, torch.Tensor) else t for t in arguments(name, shape)
    )
    inputs = [t.to(DEVICE).requires_grad_() for t in (x, *parameters)]
    y = kernel(inputs[0], shape[-dims:], *inputs[1:], 1e-5)
    assert y.shape == definition(x, shape[-dims:], eps=1e-5).shape
    y.sum().backward()
    for t in inputs:
        assert t.grad.shape == t.shape
        assert not t.grad.any()


def test_the_longest_row(monkeypatch):
    """65536 numbers, in the blocks that a GPU gets."""
    monkeypatch.setattr(launch, "COLUMNS", 16384 if launch.INTERPRETED else launch.COLUMNS)
    if launch.INTERPRETED:  # whose time goes with the number of blocks
        monkeypatch.setattr(launch, "PARTIAL_ROWS", 8)
        monkeypatch.setattr(launch, "TILE", {"forward": 16384, "backward": 16384})
    case("layer_norm", (1, 65536), torch.float32)


@NAMES
def test_half_precision_beside_float32_parameters(name):
    for dtype in (torch.bfloat16, torch.float16):
        case(name, (5, 37), dtype, parameter_dtype=torch.float32)


@NAMES
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")  # no such rows
@pytest.mark.parametrize("blocks", [False, True], ids=["resident", "in blocks"])
@pytest.mark.parametrize(
    ("mean", "std", "eps"),
    [(1e4, 1.0, 1e-5), (1e4, 0.1, 1e-12), (1e8, 1.0, 1e-5), (0.0, 1e-15, 1e-30), (0, 4e4, 0.0)],
)
def test_large_means_and_tiny_variances(name, blocks, mean, std, eps, monkeypatch):
    if blocks:
        short_blocks(monkeypatch)
    case(name, (4, 53), torch.float32, mean=mean, std=std, eps=eps)
    if std > 1e3:  # squares beyond float16's range
        case(name, (4, 53), torch.float16, mean=mean, std=std / 20, eps=eps)


@NAMES
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflow
@pytest.mark.parametrize("blocks", [False, True], ids=["resident", "in blocks"])
def test_constant_rows_and_overflow(name, blocks, monkeypatch):
    if blocks:
        short_blocks(monkeypatch)
    hard(name)
    overflow(name)


@NAMES
@pytest.mark.parametrize("missing", [(0,), (1,), (0, 1)], ids=["no gain", "no bias", "neither"])
def test_missing_parameters(name, missing):
    x, parameters = arguments(name, (9, 37))
    parameters = [None if i in missing else p for i, p in enumerate(parameters)]
    agrees(name, x, parameters, torch.float32)


VIEWS = {
    "every other row": lambda: draw(12, 37)[::2],
    "columns of a wider matrix": lambda: draw(6, 80)[:, 3:40],
    "leading dimensions exchanged": lambda: draw(3, 4, 37).transpose(0, 1),
    "three steps": lambda: draw(4, 9, 20, 37)[::2, ::3, ::5],  # of 2, 3 and 4 rows
    "four steps": lambda: draw(4, 4, 4, 4, 7)[::2, ::2, ::2, ::2],
    "rows with gaps": lambda: draw(6, 74)[:, ::2],
    "transposed": lambda: draw(37, 6).T,
    "one row repeated": lambda: draw(1, 37).expand(6, 37),
    "repeated in the middle": lambda: draw(2, 1, 37).expand(2, 3, 37),
    "one number repeated": lambda: draw(6, 1).expand(6, 37),
}


@NAMES
@pytest.mark.parametrize("view", VIEWS)
def test_strides(name, view):
    x = VIEWS[view]()
    _, parameters = arguments(name, tuple(x.shape))
    agrees(name, x, parameters, torch.float32, eps=0.1)
    if view in ("three steps", "rows with gaps"):
        agrees(name, x, parameters, torch.float32, residual=draw(*x.shape, seed=3))


@NAMES
@pytest.mark.parametrize("stride", [24, 44, 43])
@pytest.mark.parametrize("blocks", [False, True], ids=["resident", "in blocks"])
def test_rows_that_begin_at_multiples(name, stride, blocks, monkeypatch):
    """Divisors of the width divide a stride, too, or only half of them do, or none."""
    if blocks:
        short_blocks(monkeypatch)
    x = draw(6, stride)[:, :24]
    agrees(name, x, arguments(name, (6, 24))[1], torch.float32, eps=0.1)


def test_what_is_copied():
    """Nothing where rows have no gaps and three nested steps lead to them."""
    for view, steps in (
        ("every other row", (1, 1, [(74, 0, 0)])),
        ("columns of a wider matrix", (1, 1, [(80, 0, 0)])),
        ("leading dimensions exchanged", (3, 1, [(37, 148, 0)])),
        ("three steps", (3, 4, [(13320, 2220, 185)])),
        ("repeated in the middle", (3, 1, [(37, 0, 0)])),
        ("one row repeated", (1, 1, [(0, 0, 0)])),
        ("four steps", None),
        ("rows with gaps", None),
    ):
        assert launch.steps([VIEWS[view]()], 1) == steps, view


def test_strided_parameters_and_gradients():
    kernel, _, definition = KERNELS["layer_norm"]
    x, (w, b) = arguments("layer_norm", (6, 37))
    wide = torch.stack([w, b], 1).to(DEVICE)
    got = x.to(DEVICE, copy=True).requires_grad_()
    y = kernel(got, (37,), wide[:, 0], wide[:, 1])
    y.sum().backward()  # a gradient of one number, repeated
    right = x.clone().requires_grad_()
    expected = definition(right, (37,), w, b)
    expected.sum().backward()
    assert_close(y.cpu(), expected, 1e-12)
    assert_close(got.grad.cpu(), right.grad, 1e-12)


@NAMES
def test_the_same_bits_every_time(name):
    def once():
        x, parameters = arguments(name, MANY)
        leaves = [t.to(DEVICE, torch.float32).requires_grad_() for t in (x, *parameters)]
        y = KERNELS[name][0](leaves[0], MANY[1:], *leaves[1:], 1e-5)
        return [y, *torch.autograd.grad(y, leaves, draw(*MANY, seed=5).to(y))]

    assert all(torch.equal(a, b) for a, b in zip(once(), once(), strict=True))


@NAMES
@pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")  # numpy's, of NaN
def test_nan_and_infinity_stay_in_their_row(name):
    kernel, _, definition = KERNELS[name]
    for bad in (float("nan"), float("inf")):
        x, parameters = arguments(name, (5, 37))
        x[1, 2] = bad
        got = kernel(x.to(DEVICE), (37,), *(p.to(DEVICE) for p in parameters), 1e-5).cpu()
        expected = definition(x, (37,), *parameters, 1e-5)
        assert torch.equal(got.isnan(), expected.isnan())
        assert_close(got.nan_to_num(), expected.nan_to_num(), 1e-12)
