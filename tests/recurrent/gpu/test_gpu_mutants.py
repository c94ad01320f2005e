# ruff: noqa: E501  (a table, one line per case)
"""Faults put into the recurrent kernels and what stands around them on purpose: each runs, and each
must be noticed by the comparisons that the real ones pass."""

import importlib
import inspect
import sys
from typing import NamedTuple

import pytest
from kernels.kernel_cases import ON_GPU, with_rows
from recurrent.recurrent_fused import F64, Case, agrees, converted, far_from_zero, overflow

from layernorm.kernels import launch
from layernorm.recurrent import gpu
from layernorm.recurrent.gpu import compute, graphs, operators, persistent, step
from layernorm.recurrent.gpu.choice import asked

pytestmark = ON_GPU


class Mutant(NamedTuple):
    slip: str
    form: str
    part: str  # the module's name, of the kernels without _kernels
    old: str
    new: str
    options: dict = {}  # noqa: RUF012


REVERSE, EPS = {"reverse": True}, {"eps": 0.3}
MUTANTS = [
    Mutant("eps outside the root, gates", "paper", "lstm", "scale(tl.sum(i * i + f * f + g * g + o * o, 0) / (4 * units), EPS)", "1 / (tl.sqrt(tl.sum(i * i + f * f + g * g + o * o, 0) / (4 * units)) + EPS)", EPS),
    Mutant("eps outside the root, cell", "cell_only", "math", "scale(tl.sum(a * a, 0) / units, EPS)", "1 / (tl.sqrt(tl.sum(a * a, 0) / units) + EPS)", EPS),
    Mutant("unbiased variance", "gru", "math", "tl.sum(a * a, 0) / units,", "tl.sum(a * a, 0) / (units - 1),"),
    Mutant("tail not masked in the variance", "joint", "math", "return tl.where(tl.arange(0, BLOCK) < units, a - mean, 0.0)", "return a - mean"),
    Mutant("centered once, gates", "joint", "lstm", "f = centered(f, error, units, BLOCK)", "f = f"),
    Mutant("centered once, cell", "cell_only", "math", "a = centered(a, error, units, BLOCK)", "error = mean - mean"),
    Mutant("centered once", "gru", "gru", "z = centered(z, error, units, BLOCK)", "z = z"),
    Mutant("the gradient forgets the mean's error", "joint", "lstm", " - tl.load(kept + GROUPS + group)", ""),
    Mutant("the gradient forgets the error of the cell's mean", "cell_only", "lstm", "i * g - mean_c - error_c", "i * g - mean_c"),
    Mutant("the gates' gradient forgets the mean's error", "gru", "gru", "ACC, BLOCK) - mean - error) * rstd\n    hat_z", "ACC, BLOCK) - mean) * rstd\n    hat_z"),
    Mutant("a gain's gradient forgets the mean's error", "per_gate", "sums", " - error[:, None]", ""),
    Mutant("overflow to zeros", "joint", "math", 'tl.where(variance == float("inf"), float("nan"), tl.rsqrt(variance + EPS))', "tl.rsqrt(variance + EPS)"),
    Mutant("tail read as ones", "paper", "math", "mask=column < units, other=0.0).to(ACC)", "mask=column < units, other=1.0).to(ACC)"),
    Mutant("statistics shared by the candidate and the gates", "gru", "gru", "n, mean_n, error_n, rstd_n = normalize(n, units, EPS, BLOCK)", "n, mean_n, error_n, rstd_n = (n - mean) * rstd, mean, error, rstd"),
    Mutant("statistics of one gate for all", "per_gate", "lstm", "f, mean_f, error_f, rstd_f = normalize(f, units, EPS, BLOCK)", "f, mean_f, error_f, rstd_f = (f - mean_i) * rstd_i, mean_i, error_i, rstd_i"),
    Mutant("statistics shared by both terms", "paper", "compute", "arrays.stats[:, 2 * count + k]", "arrays.stats[:, -1]"),
    Mutant("gain's and bias's gradients swapped", "paper", "compute", '{"gain_h": along, "bias_h": plain}', '{"gain_h": plain, "bias_h": along}'),
    Mutant("the cell's gain's and bias's gradients swapped", "carried", "compute", 'found["gain_c"], found["bias_c"] =', 'found["bias_c"], found["gain_c"] ='),
    Mutant("mean of the gradient not subtracted", "paper", "lstm", "p_g = rstd_g * (p_g - plain - hat_g * along)", "p_g = rstd_g * (p_g - hat_g * along)"),
    Mutant("part along x̂ not subtracted", "gru", "gru", "rstd * (p_z - plain - hat_z * along)", "rstd * (p_z - plain)"),
    Mutant("part along ĉ not subtracted", "cell_only", "math", " - hat * along)", ")"),
    Mutant("the forget gate's gradient sees the new cell", "joint", "lstm", "p_f = d * c * f * (1 - f)", "p_f = d * (f * c + i * g) * f * (1 - f)"),
    Mutant("the output gate's gradient without the norm", "cell_only", "lstm", "p_o = grad * q * o * (1 - o)", "p_o = grad * tanh(f * c + i * g) * o * (1 - o)"),
    Mutant("the normalized cell is carried", "paper", "lstm", "    if CARRY:\n        c = normalized", "    if True:\n        c = normalized"),
    Mutant("the carried cell's gradient around its norm", "carried", "lstm", "if CARRY:\n        d += block", "if False:\n        d += block"),
    Mutant("the cell's own gradient forgotten", "paper", "lstm", "if not CARRY:\n        d += block", "if False:\n        d += block"),
    Mutant("what goes around the product forgotten", "gru", "gru", "put(around + row * units, 0, units, grad * z, BLOCK)", "put(around + row * units, 0, units, grad * 0, BLOCK)"),
    Mutant("the last state's gradient at every step", "paper", "lstm", "put(around + row * units, 0, units, tl.zeros_like(grad), BLOCK)", "put(around + row * units, 0, units, block(around + row * units, 0, units, ACC, BLOCK), BLOCK)"),
    Mutant("reset before the norm's bias", "gru", "gru", "n = tanh(x_n + r * (n * gain_n + add_n))", "n = tanh(x_n + r * n * gain_n + add_n)"),
    Mutant("the recurrent candidate's gradient without the reset", "gru", "gru", "    p_n *= r\n", ""),
    Mutant("update gate the other way round", "gru", "gru", "h = (1 - z) * n + z * h", "h = (1 - z) * h + z * n"),
    Mutant("input and candidate swapped in a gradient", "per_gate", "lstm", "p_i = d * g * i * (1 - i)", "p_i = d * i * i * (1 - i)"),
    Mutant("the next step reads the wrong row's cell", "paper", "lstm", "put(cells + (following + row) * units, 0, units, c, BLOCK)", "put(cells + (following + going - 1 - row) * units, 0, units, c, BLOCK)"),
    Mutant("the wrong step's cell in the gradient", "paper", "lstm", "c = block(cells + place * units, 0, units, ACC, BLOCK)\n    mean_c", "c = block(cells + tl.where(at > 0, place - 1, place) * units, 0, units, ACC, BLOCK)\n    mean_c"),
    Mutant("sequences that end lose their last cell", "paper", "lstm", "put(c_n + row * units, 0, units, c, BLOCK)", "put(c_n + row * units, 0, units, block(cells + place * units, 0, units, ACC, BLOCK), BLOCK)"),
    Mutant("a row that enters late starts from the row before", "gru", "step", "arrays.cells[to].copy_(states[entering])", "arrays.cells[to].copy_(states[:step.rows - step.known])", REVERSE),
    Mutant("rows that enter late have no initial state", "paper", "step", "if step.known < step.rows:", "if step.known == 0:", REVERSE),
    Mutant("reversed sequences in the others' order", "paper", "step", "reversed(order) if reverse else order", "order", REVERSE),
    Mutant("the weights' gradient with the states after the step", "paper", "compute", "torch.mm(dsums.t(), arrays.before)", "torch.mm(dsums.t(), arrays.before.roll(-1, 0))"),
    Mutant("the input term's bias counted twice", "paper", "compute", "_sum(inputs.bias_x, inputs.bias,", "_sum(inputs.bias_x, inputs.bias_x, inputs.bias,"),
    Mutant("a second norm of the input term left out of dx", "gru", "compute", "for span, dterm in others:", "for span, dterm in ():"),
    Mutant("in one kernel: the input term forgotten", "joint", "steps", "if ADD:\n        total +=", "if False:\n        total +="),
    Mutant("in one kernel: not reversed", "paper", "steps", "here, later = steps - 1 - t, steps - 2 - t", "here, later = t, t + 1", REVERSE),
    Mutant("in one kernel: the gradient not reversed", "gru", "steps", "        if REVERSE:\n            here = t", "        if REVERSE:\n            here = steps - 1 - t", REVERSE),
    Mutant("in one kernel: a tile of rows that is not full left out", "paper", "steps", "tl.cdiv(batch, ROWS), programs // across):", "batch // ROWS, programs // across):"),
    Mutant("in one kernel: a program skips its second row", "gru", "steps", "range(program, batch, programs)", "range(program, batch, 2 * programs)"),
    Mutant("in one kernel: the state goes to its own step", "per_gate", "steps", "following = later *", "following = here *"),
    Mutant("in one kernel: the last but one step ends", "paper", "steps", "tl.where(t + 1 < steps, batch, 0)", "tl.where(t + 2 < steps, batch, 0)"),
    Mutant("in one kernel: the product before the gates' gradient", "cell_only", "persistent", '("GATED", "PRODUCT")', '("PRODUCT", "GATED")'),
    Mutant("in one kernel: the gates before the product", "carried", "persistent", 'order = ("PRODUCT", "GATED")', 'order = ("GATED", "PRODUCT")'),
    Mutant("in one kernel: the next column's weights", "gru", "steps", "COLUMNS + tl.arange(0, COLUMNS)[None, None, :]", "COLUMNS + 1 + tl.arange(0, COLUMNS)[None, None, :]"),
    Mutant("in one kernel: no initial state", "gru", "persistent", "arrays.before[first].copy_(h0)", "arrays.before[first].zero_()"),
    Mutant("in one kernel: the state's gradient without the first product", "paper", "persistent", "return found, around.add_(dh), dc", "return found, around, dc"),
    Mutant("a program skips its second tile", "paper", "sums", "tl.num_programs(0)):", "2 * tl.num_programs(0)):"),
    Mutant("a tile that is not full left out", "gru", "sums", "tl.cdiv(count, ROWS), tl.num_programs(0)", "count // ROWS, tl.num_programs(0)"),
]  # fmt: skip


USERS = (step, persistent, compute, graphs, operators)


def name_of(part: str) -> str:
    names = {"lstm": "lstm_kernels", "gru": "gru_kernels", "steps": "persistent_kernels"}
    return f"layernorm.recurrent.gpu.{names.get(part, part)}"


def changed(part: str, old: str, new: str, folder):
    """The module with one fragment replaced; its classes are still the original's."""
    original = importlib.import_module(name_of(part))
    source = inspect.getsource(original)
    assert old in source, f"{old!r} no longer stands in {original.__name__}"
    module = with_rows(source.replace(old, new), folder, f"mutant_{part}")
    for name, value in vars(original).items():
        if inspect.isclass(value):
            setattr(module, name, value)
    return module


def install(part: str, module, monkeypatch) -> None:
    """Put it in the original's place, and its functions in theirs, wherever they are used."""
    original = name_of(part)
    for user in USERS:
        for name, value in list(vars(user).items()):
            if value is sys.modules[original]:
                monkeypatch.setattr(user, name, module)
            elif (
                user.__name__ != original
                and not inspect.isclass(value)
                and getattr(value, "__module__", None) == original
            ):
                monkeypatch.setattr(user, name, getattr(module, name))


def prepare(part: str, old: str, new: str, monkeypatch, folder) -> None:
    module = changed(part, old, new, folder)
    install(part, module, monkeypatch)
    if part == "sums":  # a program has several tiles
        monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip(1, 0))
        module.ROWS, module.AT_ONCE = 2, 1
    if part == "math":  # the kernels import its functions by name
        for user in ("lstm", "gru"):
            kernels = changed(user, "", "", folder)
            for name in set(vars(kernels)) & set(vars(module)) - {"tl", "triton"}:
                if not name.startswith("_"):
                    setattr(kernels, name, getattr(module, name))
            install(user, kernels, monkeypatch)


def judge(mutant: Mutant) -> None:
    kind = "gru" if mutant.form == "gru" else "lstm"
    if mutant.part in ("persistent", "steps"):
        with asked(persistent=True):
            agrees(Case(kind, mutant.form, (18,) * 3, units=9, inputs=2, **mutant.options), 1e-9)
        return
    agrees(Case(kind, mutant.form, (3, 2, 2), units=5, inputs=2, **mutant.options), 1e-9)
    for hard in (far_from_zero, overflow):
        assert hard(gpu, kind, 7, mutant.form, lambda at: converted(at, F64)) < 1e-9


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.form}: {m.slip}")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of what mutants compute
def test_a_comparison_catches(mutant, monkeypatch, tmp_path):
    prepare(*mutant[2:5], monkeypatch, tmp_path)
    with pytest.raises(AssertionError, match=r"^\[|^assert"):
        judge(mutant)


UNCHANGED = [("lstm", "paper"), ("gru", "gru"), ("math", "paper"), ("math", "gru"),
             ("sums", "gru"), ("step", "paper"), ("compute", "gru"), ("persistent", "gru"), ("steps", "paper")]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("part", "form"), UNCHANGED)
def test_the_unchanged_source_is_not_caught(part, form, monkeypatch, tmp_path):
    prepare(part, "", "", monkeypatch, tmp_path)
    judge(Mutant("none", form, part, "", ""))
