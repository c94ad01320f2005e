"""A made-up method, added by the rows that CONTRIBUTING.md asks for, and where it is then found.

`test_made_up_method.py` runs this file in a process of its own, as a plugin that comes before every
other import, so that the rows are there from the start as if they stood in `layernorm/methods.py`.
"""

import pytest
import torch
from torch import nn

from layernorm.methods import FORMS, METHODS, Form, Method

NAME = "length"


def length_norm(x, weight, bias, eps):
    """y = g (x - mu) / sqrt(|x - mu|^2 + eps) + b, over the last dimension."""
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().sum(-1, keepdim=True) + eps).sqrt() * weight + bias


class LengthNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = 1e-5

    def forward(self, x):
        return length_norm(x, self.weight, self.bias, self.eps)


def statistics(a):
    mu = a.mean()
    return mu, a.total(lambda k: (k - mu) ** 2)


METHODS[NAME] = Method(
    NAME, "length normalization", "the units of the layer", "made up", "#123456", "*", LengthNorm
)
FORMS[NAME] = Form("units", statistics)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_length_has_a_row_in_table_1():
    from layernorm import symbolic

    table = symbolic.table1()
    assert {t: str(c) for t, c in table[NAME].items()} == {
        t: str(c) for t, c in table["layer"].items()
    }


def test_length_has_a_derived_gradient():
    from layernorm import symbolic

    a, gain, bias, dy = draw(5, 6), draw(6), draw(6), draw(5, 6)
    ours = symbolic.function(NAME)(dy, a, gain, 1e-5)
    theirs = torch.autograd.grad(length_norm(a, gain, bias, 1e-5), (a, gain, bias), dy)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


def test_length_has_a_fisher_matrix_by_two_routes():
    from layernorm.lab.analysis import fisher
    from layernorm.symbolic.geometry import GLM

    numbers, model = fisher.model(2, 2, 2), GLM("gaussian", NAME, 2, 2, 2)
    by_autograd = fisher.by_definition("gaussian", NAME, *numbers)
    by_sympy = model.evaluate(model.fisher(), *numbers)
    torch.testing.assert_close(by_sympy, by_autograd, rtol=1e-10, atol=1e-10)


def test_length_is_in_the_figures():
    from layernorm.lab import invariance_figure, plotting

    found = invariance_figure.figure(("case_scale",))
    assert NAME in [m["name"] for m in found.specification()["methods"]]
    data, metadata = found._repr_mimebundle_()
    assert "RMS normalization and length normalization" in metadata["image/png"]["alt"]
    assert data["image/png"]
    assert plotting.axes_picture((NAME,)).axes[0].get_title() == "length normalization"
    assert plotting.look("length-4") == {"color": "#123456", "marker": "*"}


def test_length_is_in_the_benchmarks():
    from layernorm.lab.benchmarks import norms, training
    from layernorm.lab.benchmarks.norms import plan

    rows = norms.quick(methods=[NAME], shape=(4, 3, 5), roof=1e9)
    assert [(r.method, r.implementation, r.status) for r in rows] == [
        (NAME, "definition", "measured")
    ] * 2
    (case, _) = plan.plan(methods=NAME, shapes="4x8", modes="forward,backward", dtypes="float32")
    assert "layernorm.methods.METHODS" in case.depends_on("definition")
    assert f"{NAME}/reference" in training.TrainingCase("mlp", (4, 3, 5, 10)).implementations


@pytest.mark.parametrize(("name", "arm"), [("mnist", "layer"), ("drift", "layer-tanh")])
def test_length_is_trained_by_experiments_whose_method_is_free(name, arm):
    from layernorm.lab.experiments import get, run

    config = get(name).config("book", arm, 0, method=NAME, updates=2, evaluations=1)
    assert run.train(config, save=False).config["method"] == NAME
