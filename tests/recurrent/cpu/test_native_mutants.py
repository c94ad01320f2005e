"""Faults put into the C++ on purpose: each compiles, and each must be noticed."""

import os
import re
import shutil
import subprocess

import pytest
import torch
from recurrent.recurrent_fused import distance, far_from_zero, overflow

from layernorm.recurrent import cpu
from layernorm.recurrent.cpu import binding, build

pytestmark = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))

# kind and variant, file, what stands there, what the mutant has instead
MUTANTS = {
    "backward drops the mean along x̂": (
        "lstm", "paper", "norm.h", " - hat[j] * means.along", "",
    ),
    "backward drops the mean of the gradient": (
        "gru", "paper", "norm.h", "dy[j] * gain[j] - means.plain", "dy[j] * gain[j]",
    ),
    "moments of the wrong row": (
        "lstm", "paper", "lstm.h", "m.of_h[r * a.groups + q] = moments",
        "m.of_h[(r ? r - 1 : 0) * a.groups + q] = moments",
    ),
    "a panel's last columns are not written": (
        "lstm", "paper", "gemm.h", ": all, count);",
        ": all, count < kLanes<T> ? count - 1 : count);",
    ),
    "moments of a team are averaged without their distance": (
        "gru", "paper", "norm.h", " + T(count(k)) * off * off", "",
    ),
    "epsilon outside the root": (
        "lstm", "cell_only", "norm.h", "std::sqrt(deviations * share + eps)",
        "(std::sqrt(deviations * share) + eps)",
    ),
    "centered once": (
        "lstm", "paper", "norm.h", "error = first - mean + off;", "error = 0;",
    ),
    "the summed inputs' errors of the mean are dropped": (
        "gru", "paper", "norm.h", "(a - mean - error) * inverse", "(a - mean) * inverse",
    ),
    "the gradient forgets the error of the cell's mean": (
        "lstm", "cell_only", "lstm_backward.h", "return {s[0], s[1], s[2]};",
        "return {s[0], T(0), s[2]};",
    ),
    "overflow to zeros": (
        "lstm", "joint", "norm.h", "std::isinf(root) ? std::numeric_limits<T>::quiet_NaN() :", "",
    ),
    "gates overflow": (
        "lstm", "cell_only", "arithmetic.h", "const T e = expm1<T>(", "const T e = std::expm1(",
    ),
    "the normalized cell is carried": (
        "lstm", "paper", "lstm.h", "c[j] = carry ? normalized : raw[j];", "c[j] = normalized;",
    ),
    "the forget gate's gradient sees the new cell": (
        "lstm", "joint", "lstm_backward.h", "pf[j] = dc[j] * c[j]", "pf[j] = dc[j] * cell[j]",
    ),
    "the gradient of the carried cell skips its norm": (
        "lstm", "carried", "lstm_backward.h", "+ carry * dc[j];", ";",
    ),
    "every gate has the first gate's scale": (
        "lstm", "per_gate", "lstm_backward.h", "scales[a.groups + q]", "scales[a.groups]",
    ),
    "what goes around the norms is lost": (
        "gru", "paper", "gru_backward.h", "state[j] = grad * z;", "state[j] = 0;",
    ),
    "the reset gate before the norm's bias": (
        "gru", "paper", "gru.h", "sigmoid(xr[j] + hr[j]) * hn[j]",
        "sigmoid(xr[j] + hr[j]) * (hn[j] - m.shift_h[2 * n + j])",
    ),
    "a later block replaces the weights' gradient": (
        "lstm", "paper", "backward.h", "H, H}, H, add,", "H, H}, H, false,",
    ),
    "a squad's part of the weights' gradient is left out": (
        "lstm", "paper", "backward.h", "+= (squads[s].*part)[j];", "+= 0 * (squads[s].*part)[j];",
    ),
    "steps of a squad lie side by side": (
        "lstm", "joint", "backward.h", "if (n && there == at + n)", "if (n)",
    ),
    "squads begin in the same state": (
        "gru", "paper", "backward.h", "in<T>(a.h0) + steps.sequence(r) * H", "in<T>(a.h0) + r * H",
    ),
    "a tile's copied columns are those of the first tile": (
        "gru", "paper", "gemm.h", "const T* from = a + begin;", "const T* from = a;",
    ),
    "sums replace what they are added to": (
        "lstm", "paper", "gemm.h", "all + load(to, count)", "all",
    ),
    "a part of few sums is left out": (
        "lstm", "paper", "gemm.h", "all += sum[s][r][v];", "all += 0 * sum[s][r][v];",
    ),
    "a tile's last column is not copied": (
        "gru", "paper", "gemm.h", "kCopied * sizeof(T));", "(rows - 1) * sizeof(T));",
    ),
    "a squad's sums are left out": (
        "lstm", "paper", "sequence.h", "all[j] += other.all[j];", "all[j] += 0 * other.all[j];",
    ),
    "squads read each other's rows": (
        "gru", "paper", "forward.h", "product_with_x(m, offset + lo,", "product_with_x(m, offset,",
    ),
    "a row that enters late starts from the row before": (
        "gru", "paper", "sequence.h", "return r < rows(t) ? offset(t) + r : -1;",
        "return offset(t) + std::min(r, rows(t) - 1);",
    ),
}  # fmt: skip


def far(kind: str, variant: str) -> bool:
    """Does any of these cases differ from the definition? Teams, tails, late rows, two blocks,
    squads; means and squares beyond what rounding and range leave of them."""
    cases = [
        distance(kind, [5, 5, 4, 2, 2, 1], 7, 101, variant, reverse=True),
        distance(kind, [60] * 20, 2, 5, variant),
        distance(kind, [26, 20, 3], 7, 40, variant),
        far_from_zero(cpu, kind, 101, variant),
        overflow(cpu, kind, 7, variant),
    ]
    return not max(cases) < 1e-9  # NaN is far too


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """All mutants' libraries, compiled side by side, in double alone and only what is judged."""
    folder, jobs = tmp_path_factory.mktemp("mutants"), {}
    slots = os.cpu_count() or 1
    for number, (name, (kind, _, file, old, new)) in enumerate(
        {"none": [""] * 5, **MUTANTS}.items()
    ):
        source = shutil.copytree(build.SOURCES, folder / str(number))
        entries = (source / "recurrent.cpp").read_text()
        judged = re.sub(rf"int (?!{kind}\w*_double)\w+_(float|double)\(.*", "", entries)
        (source / "recurrent.cpp").write_text(judged)
        if file:
            text = (source / file).read_text()
            assert text.count(old) == 1, f"{name}: {file} has {text.count(old)} times {old!r}"
            (source / file).write_text(text.replace(old, new))
        flags = ["-O1" if f == "-O3" else f for f in build.options(build.instruction_set())]
        target = folder / f"{number}.so"
        command = [*build.compiler(), *flags, str(source / "recurrent.cpp"), "-o", str(target)]
        if len(jobs) >= slots:
            list(jobs.values())[len(jobs) - slots][1].wait()
        jobs[name] = target, subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for _, job in jobs.values():
        assert job.wait() == 0, job.stderr.read()
        job.stderr.close()
    return {name: target for name, (target, _) in jobs.items()}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name, compiled, monkeypatch):
    kind, variant, *_ = MUTANTS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for fault, expected in (("none", False), (name, True)):
            library = build._open(compiled[fault])
            monkeypatch.setattr(binding, "library", lambda found=library: found)
            assert far(kind, variant) is expected
    finally:
        torch.set_num_threads(before)
