"""The figure's numbers are the definitions', its verdicts those that theory gives."""

import json
from dataclasses import asdict, replace
from importlib.metadata import entry_points

import one_picture
import pytest
import torch

from layernorm import functional
from layernorm.lab import invariance_figure
from layernorm.lab.invariance_figure import CASE, NAMES, SCALES, SHIFTS, UNIT, Sliders

# What does not care about which slider: eqs. 2, 3 and 5, and Table 1 of the paper.
INVARIANT = {
    "case_scale": {"layer", "rms"},
    "case_shift": {"layer"},
    "unit_scale": {"batch", "weight"},
    "unit_shift": {"batch"},
    "data_scale": {"batch", "layer", "rms"},
    "data_shift": {"batch"},
    "weights_scale": {"batch", "weight", "layer", "rms"},
    "weights_shift": {"layer"},
}


@pytest.mark.parametrize("slider", INVARIANT)
def test_exactly_the_right_methods_do_not_care(slider):
    values = SCALES if slider.endswith("scale") else SHIFTS
    rest = getattr(Sliders(), slider)
    for value in (v for v in values if v != rest):
        found = invariance_figure.verdicts(replace(Sliders(), **{slider: value}))
        same = {name for name in NAMES if found[name] == "unchanged"}
        if slider.endswith("scale") and value < 0:
            assert same == set()  # every invariance to scale needs a positive one
        else:
            assert same == INVARIANT[slider], value


@pytest.mark.parametrize(
    ("name", "value"),
    [("case_scale", 0.0), ("unit_shift", float("nan")), ("data_scale", float("inf"))],
)
def test_a_slider_where_nothing_is_defined_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be finite.*, got {value!r}"):
        Sliders(**{name: value})


def test_at_rest_all_are_unchanged():
    assert set(invariance_figure.verdicts(Sliders()).values()) == {"unchanged"}


def test_no_change_is_so_small_that_it_would_be_shown_as_zero():
    before = invariance_figure.outputs(Sliders())
    for slider in INVARIANT:
        values = SCALES if slider.endswith("scale") else SHIFTS
        for value in (v for v in values if v != getattr(Sliders(), slider)):
            after = invariance_figure.outputs(replace(Sliders(), **{slider: value}))
            for name in NAMES:
                change = (after[name] - before[name]).abs().max()
                assert change < 1e-12 or change > 0.01, (slider, value, name)


@pytest.mark.parametrize("s", [Sliders(), Sliders(2.0, -1.0, -0.5, 0.75, 3.0, -2.25, 1.5, 0.5)])
def test_summed_inputs_are_what_the_sliders_say(s):
    a, weights = invariance_figure.summed_inputs(s)
    for n, x in enumerate(invariance_figure.X):
        for i, w in enumerate(invariance_figure.W):
            x_moved = [(s.data_scale * e + s.data_shift) for e in x]
            w_moved = [s.weights_scale * e + s.weights_shift for e in w]
            w_moved = [(s.unit_scale if i == UNIT else 1.0) * e for e in w_moved]
            expected = (s.case_scale if n == CASE else 1.0) * sum(
                e * f for e, f in zip(x_moved, w_moved, strict=True)
            )
            expected += s.case_shift if n == CASE else 0.0
            expected += s.unit_shift if i == UNIT else 0.0
            assert a[n, i].item() == pytest.approx(expected, abs=1e-12)
            assert weights[i].tolist() == pytest.approx(w_moved, abs=1e-12)


def test_weight_normalization_is_the_definition():
    """Where no shift is added, (a - 0) / |w| is what normalized weights give."""
    s = Sliders(case_scale=3.0, unit_scale=-2.0, data_scale=0.5, data_shift=1.0)
    x = torch.tensor(invariance_figure.X, dtype=torch.float64) * s.data_scale + s.data_shift
    x[CASE] *= s.case_scale
    _, w = invariance_figure.summed_inputs(s)
    gain = torch.ones(len(w), 1, dtype=torch.float64)
    expected = x @ functional.weight_norm(w, gain).T
    torch.testing.assert_close(invariance_figure.outputs(s)["weight"], expected, rtol=0, atol=1e-12)


def test_the_script_gets_the_layer_and_no_result():
    specification = invariance_figure.figure().specification()
    assert json.loads(json.dumps(specification)) == specification
    assert specification["x"] == invariance_figure.X
    assert tuple(s["name"] for s in specification["sliders"]) == invariance_figure.SUMMED
    assert specification["rest"] == asdict(Sliders())
    for slider in specification["sliders"]:
        assert slider["rest"] in slider["values"]
        assert 0.0 not in slider["values"] or slider["kind"] == "shift"


def test_a_notebook_stores_a_picture_with_its_words_and_no_html():
    data, metadata = invariance_figure.figure()._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", invariance_figure.MIME}
    words = metadata["image/png"]["alt"]
    assert "shift of one case: layer normalization; scale of one unit" in words


def test_the_book_shows_the_sliders_and_without_scripts_the_picture():
    from types import SimpleNamespace

    (plugin,) = entry_points(group="myst_nb.mime_renderers", name="invariance")
    render = plugin.load().handle_mime
    content = invariance_figure.figure().specification()
    output = SimpleNamespace(mime_type=invariance_figure.MIME, content=content)
    (node,) = render(None, output, False)
    assert node.astext().startswith('<div class="invariance" data-specification="{&quot;x&quot;')
    assert '<img src="data:image/png;base64,' in node.astext()
    assert f'alt="{invariance_figure.description()}"' in node.astext()
    assert render(None, SimpleNamespace(mime_type="image/png", content=""), False) is None


def test_the_columns_of_table_1_have_their_own_figure():
    figure = invariance_figure.figure(invariance_figure.TABLE_1)
    shown = [slider["name"] for slider in figure.specification()["sliders"]]
    assert tuple(shown) == invariance_figure.TABLE_1
    _, metadata = figure._repr_mimebundle_()
    assert "shift of all weights: layer normalization; scale" in metadata["image/png"]["alt"]
    assert (
        figure._repr_mimebundle_()[0]["image/png"]
        != (invariance_figure.figure()._repr_mimebundle_()[0]["image/png"])
    )
    with pytest.raises(ValueError, match=r"sliders must be some of .*got \['weight_scale'\]"):
        invariance_figure.figure(("weight_scale",))


def test_the_one_picture_is_current():
    assert one_picture.FILE.read_text(encoding="utf-8") == one_picture.draw(), (
        "run python tools/one_picture.py"
    )
