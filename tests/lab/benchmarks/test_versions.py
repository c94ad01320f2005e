"""Chapter 13's table: versions of a kernel are checked, their bytes are counted, they are timed."""

import pytest
import torch

from layernorm import functional
from layernorm.lab.benchmarks import versions
from layernorm.lab.benchmarks.measure import roof

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

CPU = torch.device("cpu")
ROWS, UNITS = 4, 6
CASES = [(1, 1, torch.float64), (3, 5, torch.float32), (ROWS, UNITS, torch.float32)]


def draw(rows, units, dtype=torch.float32):
    torch.manual_seed(0)
    a, (g, b) = torch.randn(rows, units), torch.randn(2, units)
    return [t.to(dtype) for t in (3 + a, g, b)]


def right(a, g, b, eps=1e-5):
    return functional.layer_norm(a, g.shape, g, b, eps)


def eps_outside(a, g, b, eps=1e-5):
    centered = a - a.mean(1, keepdim=True)
    return g * centered / (centered.square().mean(1, keepdim=True).sqrt() + eps) + b


def gradients(dy, a, g, eps=1e-5):
    leaves = [t.detach().requires_grad_() for t in (a, g, torch.zeros_like(g))]
    return torch.autograd.grad(right(*leaves, eps), leaves, dy)


def without_the_second_sum(dy, a, g, eps=1e-5):
    c = g * dy
    scale = (a.var(1, correction=0, keepdim=True) + eps).rsqrt()
    return (scale * (c - c.mean(1, keepdim=True)),)


@triton.jit
def copy_kernel(a, y, H, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    kept = tl.load(a + at, mask=at < H, other=0.0)  # the same row for all programs
    tl.store(y + tl.program_id(0) * H + at, kept, mask=at < H)


def copies(target, a):
    copy_kernel[(len(target),)](a, target, a.shape[1], 8)


def trials(monkeypatch, moves=(0, 0)):
    monkeypatch.setattr(versions, "count", lambda call: versions.Bytes(*moves))
    return versions.Versions(draw, CASES, (8, 16), CPU)


def test_passes_are_compared_with_the_definition():
    for case in CASES:
        error, allowed = versions.forward_error(right, *draw(*case))
        assert error < allowed
        error, allowed = versions.backward_error(gradients, *draw(*case))
        assert error < allowed
    error, allowed = versions.forward_error(eps_outside, *draw(*CASES[-1]))
    assert error > allowed
    error, allowed = versions.backward_error(without_the_second_sum, *draw(*CASES[-1]))
    assert error > allowed


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for CPUs")
def test_bytes_are_asked_for_by_programs_and_different_in_a_launch():
    target, source = torch.zeros(ROWS, UNITS), torch.ones(1, UNITS)
    row, all_rows = 4 * UNITS, 4 * ROWS * UNITS
    once = versions.count(lambda: copies(target, source))
    assert once == (2 * all_rows, row + all_rows)
    assert target.eq(1).all()
    halves = versions.count(lambda: copies(target.half(), source.half()))
    assert halves == tuple(n // 2 for n in once)
    twice = versions.count(lambda: [copies(target, source) for _ in range(2)])
    assert twice == tuple(2 * n for n in once)


def test_a_version_has_a_row_with_the_predicted_trips(monkeypatch):
    table = trials(monkeypatch, (4 * 48, 4 * 36))
    row = table.forward("right", right, 48, 36).loc["right"]
    assert (row.asked, row.distinct, row[versions.SHARE]) == (2.0, 1.5, versions.NOT_YET)
    assert float(row.error) < float(row.allowed)
    assert table.backward("right", gradients, 48, 36).loc["right"].asked == 2.0
    assert table.moved == {"right": (2.0, 1.5)}
    assert table.calls == {"right": right}
    assert table.side_by_side({})[versions.SHARE].to_dict() == {"right": versions.NOT_YET}


def test_a_wrong_version_and_other_bytes_are_refused(monkeypatch):
    table = trials(monkeypatch, (192, 144))
    with pytest.raises(ValueError, match=r"outside \(3, 5, torch.float32\): error .*, allowed"):
        table.forward("outside", eps_outside, 48, 36)
    with pytest.raises(ValueError, match="ask for 192 bytes, 96 of them distinct; it asks for"):
        table.forward("right", right, 48, 24)


def test_versions_are_timed_as_shares_of_a_copys_speed(monkeypatch):
    monkeypatch.setattr(roof, "copy_bandwidth", lambda *_: 1e9)
    monkeypatch.setattr(
        versions.timing, "interleaved", lambda _, calls, *rest: {name: [2e-6] for name in calls}
    )
    table = trials(monkeypatch)
    table.clock = versions.Clock(CPU)
    least = 4 * (2 * 8 * 16 + 2 * 16)
    share = round(least / 2e-6 / 1e9, 2)
    row = table.forward("right", right, 48, 36).loc["right"]
    assert (row.ms, row[versions.SHARE]) == (0.002, share)
    backward = table.backward("right", gradients, 48, 36).loc["right"]
    assert backward[versions.SHARE] == round(4 * (3 * 8 * 16 + 3 * 16) / 2e-6 / 1e9, 2)
    both = table.side_by_side({"again": right})[versions.SHARE]
    assert both.to_dict() == {"right": share, "again": share}


def test_without_triton_a_version_is_not_run(monkeypatch):
    monkeypatch.setattr(versions, "find_spec", lambda name: None)
    table = versions.Versions(draw, CASES, (8, 16), CPU)
    assert table.forward("right", right, 48, 36) == versions.NOT_RUN
    assert table.backward("right", gradients, 48, 36) == versions.NOT_RUN
    assert table.moved == {"right": (2.0, 1.5)}
