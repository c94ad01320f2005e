"""Table 1: every cell is what theory and float64 give, and none can be changed unnoticed."""

import pytest
import sympy
import torch

from layernorm import functional as F
from layernorm.symbolic import METHODS, TRANSFORMATIONS, Sizes, decide, definitions, invariances
from layernorm.symbolic.invariances import DELTA, EPS, VARIANCE, counterexample, prove

# Weight matrix re-scaled and re-centered, weight vector re-scaled, data set re-scaled and
# re-centered, single case re-scaled: the paper's Table 1, and two rows that it does not have.
EXPECTED = {
    "batch": "yes no yes yes yes no",
    "weight": "yes no yes no no no",
    "layer": "yes yes no yes no yes",
    "rms": "yes no no yes no yes",
    "group": "yes yes no yes no yes",
}
ANSWERS = {
    (method, transformation): answer == "yes"
    for method, row in EXPECTED.items()
    for transformation, answer in zip(TRANSFORMATIONS, row.split(), strict=True)
}
YES = [key for key, answer in ANSWERS.items() if answer]
NO = [key for key, answer in ANSWERS.items() if not answer]


@pytest.fixture(scope="module")
def table():
    return invariances.table1()


@pytest.mark.parametrize("cell", ANSWERS)
def test_each_cell(cell, table):
    method, transformation = cell
    found = table[method][transformation]
    assert str(found) == ("yes" if ANSWERS[cell] else "no")
    assert (found.proof is None) == (found.counterexample is not None) == (not ANSWERS[cell])


def test_the_table_is_whole(table):
    assert len(ANSWERS) == 30
    assert [(m, t) for m in EXPECTED for t in table[m]] == list(ANSWERS)
    assert set(table) == set(METHODS)


def outputs(method, X, W, eps=0.0, groups=2):
    """The normalized outputs by layernorm.functional, in float64."""
    a = X @ W.T
    if method == "weight":
        return X @ F.weight_norm(W, W.new_ones(len(W), 1)).T
    if method == "batch":
        return F.batch_norm(a, None, None, training=True, eps=eps)
    if method == "group":
        return F.group_norm(a, groups, eps=eps)
    return {"layer": F.layer_norm, "rms": F.rms_norm}[method](a, a.shape[1:], eps=eps)


def moved(transformation, X, W, scale, shift):
    """The transformations once more, written independently, in torch."""
    delta = scale[0]
    return {
        "weight_matrix_rescaling": (X, delta * W),
        "weight_matrix_recentering": (X, W + shift),
        "weight_vector_rescaling": (X, scale[: len(W), None] * W),
        "dataset_rescaling": (delta * X, W),
        "dataset_recentering": (X + shift, W),
        "single_case_rescaling": (scale[: len(X), None] * X, W),
    }[transformation]


@pytest.mark.parametrize("cell", NO)
def test_each_counterexample_holds_in_float64(cell, table):
    found = table[cell[0]][cell[1]].counterexample
    X, W, scale, shift = (
        torch.tensor(values).double() for values in (found.X, found.W, found.scale, found.shift)
    )
    where = found.case - 1, found.unit - 1
    before, after = outputs(cell[0], X, W), outputs(cell[0], *moved(cell[1], X, W, scale, shift))
    assert before[where].item() == pytest.approx(float(found.before), abs=1e-12)
    assert after[where].item() == pytest.approx(float(found.after), abs=1e-12)
    assert abs(float(found.after - found.before)) > 0.1


@pytest.mark.parametrize("cell", NO)
def test_no_proof_where_there_is_a_counterexample(cell):
    assert prove(*cell) is None


@pytest.mark.parametrize("cell", YES)
def test_no_counterexample_where_there_is_a_proof(cell):
    for units in (2, 3, 4, 5, 6):
        sizes = Sizes(cases=3, features=2, units=units, group=units if units % 2 else units // 2)
        assert counterexample(*cell, sizes, draws=5) is None


@pytest.mark.parametrize("cell", YES)
def test_each_proof_predicts_the_ratio_of_outputs(cell, table):
    """For scales of both signs and with eps, y'/y is what the proof says, in float64."""
    proof, (method, transformation) = table[cell[0]][cell[1]].proof, cell
    torch.manual_seed(0)
    X, W, shift = torch.randn(5, 3).double(), torch.randn(6, 3).double(), torch.randn(3).double()
    sigma2 = outputs_variance(method, X, W)
    for delta, eps in ((3.0, 0.0), (-0.5, 0.0), (3.0, 0.1), (-0.5, 0.1)):
        scale = torch.full((6,), delta, dtype=torch.float64)
        new = outputs(method, *moved(transformation, X, W, scale, shift), eps=eps)
        put_in = {DELTA: delta, EPS: eps}
        ratio = sympy.lambdify(sympy.sqrt(VARIANCE), proof.ratio.subs(put_in), "numpy")
        expected = torch.as_tensor(ratio(sigma2.sqrt().numpy())) * outputs(method, X, W, eps=eps)
        torch.testing.assert_close(new, expected, rtol=0, atol=1e-12)


def outputs_variance(method, X, W):
    """sigma^2 of every output, from the shape of what is averaged."""
    a = X @ W.T
    if method == "weight":
        return W.square().sum(1).expand_as(a)
    if method == "batch":
        return a.var(0, correction=0).expand_as(a)
    if method == "rms":
        return a.square().mean(1, keepdim=True).expand_as(a)
    groups = a.unflatten(1, (2 if method == "group" else 1, -1))
    return groups.var(2, correction=0, keepdim=True).expand_as(groups).flatten(1)


def test_conditions_come_out(table):
    assert table["layer"]["weight_matrix_rescaling"].conditions == ("δ > 0", "ε = 0")
    assert table["layer"]["weight_matrix_recentering"].conditions == ()
    assert table["batch"]["dataset_recentering"].conditions == ()
    assert table["weight"]["weight_vector_rescaling"].conditions == ("δ > 0",)
    assert table["weight"]["dataset_rescaling"].conditions == ()
    sigma, delta = sympy.symbols("sigma delta", positive=True)
    growth = table["layer"]["single_case_rescaling"].proof.error_growth
    assert sympy.simplify(growth - (1 - 1 / delta**2) / (2 * sigma**2)) == 0


ORIGINAL = definitions.statistics


@pytest.mark.parametrize(
    ("method", "mutant"),
    [("batch", "layer"), ("weight", "rms"), ("layer", "rms"), ("rms", "layer"), ("group", "rms")],
)
def test_a_changed_definition_changes_its_row(method, mutant, monkeypatch):
    def changed(name, *rest):
        return ORIGINAL(mutant if name == method else name, *rest)

    monkeypatch.setattr(definitions, "statistics", changed)
    row = " ".join(str(decide(method, t)) for t in TRANSFORMATIONS)
    assert row == EXPECTED[mutant] != EXPECTED[method]


def test_a_cell_without_proof_and_counterexample_is_an_error(monkeypatch):
    monkeypatch.setattr(invariances, "prove", lambda *cell: None)
    with pytest.raises(invariances.Undecided, match="layer, dataset_rescaling: neither"):
        decide("layer", "dataset_rescaling")


def test_unknown_names_are_refused_with_the_nearest():
    for ask in (decide, prove, counterexample):
        with pytest.raises(ValueError, match=r"unknown method 'bach'.*did you mean 'batch'\?"):
            ask("bach", "dataset_rescaling")
        with pytest.raises(
            ValueError, match=r"unknown transformation 'dataset_scale'.*did you mean"
        ):
            ask("batch", "dataset_scale")
