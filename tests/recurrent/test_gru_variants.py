"""The GRU's other forms, against an independent net; their cells."""

import pytest
import torch
from apart import outcomes, report
from library.oracle import draw
from recurrent.recurrent_reference import net, shaken
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from layernorm import LayerNormGRU, LayerNormGRUVariant, LayerNormGRUVariantCell
from layernorm.recurrent import gru_variants
from layernorm.recurrent.gru_variants import VARIANTS

LENGTHS = (2, 4, 1, 3)


def made(variant: str, bias: bool = True, **options) -> LayerNormGRUVariant:
    """Its eps is one that nothing can have built in."""
    module = LayerNormGRUVariant(
        3, 4, bias=bias, variant=variant, eps=0.1, dtype=torch.float64, **options
    )
    return shaken(module)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_gradients_are_the_independent_nets(variant, layers, bias, packed):
    module = made(variant, bias, num_layers=layers, bidirectional=layers == 2)
    lengths = LENGTHS if packed else (4, 4)
    found = []
    for compute in ("module", "net"):
        sequences = [draw(n, 3, seed=k).requires_grad_() for k, n in enumerate(lengths)]
        h0 = draw(layers**2, len(lengths), 4, seed=40).requires_grad_()
        if compute == "net":
            outputs, [last] = net(module, sequences, [h0])
        elif packed:
            y, last = module(pack_sequence(sequences, enforce_sorted=False), h0)
            outputs = unpack_sequence(y)
        else:
            y, last = module(torch.stack(sequences, 1), h0)
            outputs = y.unbind(1)
        values = [*outputs, last]
        loss = sum((draw(*v.shape, seed=70 + k) * v).sum() for k, v in enumerate(values))
        wanted = [*sequences, h0, *module.parameters()]
        found.append([*values, *torch.autograd.grad(loss, wanted)])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_cell_stepped_over_time_is_the_layer(variant):
    layer = made(variant)
    cell = LayerNormGRUVariantCell(3, 4, eps=0.1, variant=variant, dtype=torch.float64)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x, h = draw(5, 2, 3), None
    for step, expected in zip(x, layer(x)[0], strict=True):
        h = cell(step, h)
        torch.testing.assert_close(h, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(cell(x[0, 0]), cell(x[0])[0], rtol=1e-12, atol=1e-12)


def test_the_parameters_and_where_they_start():
    joint, stacked, per_gate = (LayerNormGRUVariant(3, 4, variant=v) for v in VARIANTS)
    norms = {f"ln_{term}_{part}_l0" for term in ("ih", "hh") for part in ("weight", "bias")}
    assert set(stacked.state_dict()) == set(LayerNormGRU(3, 4).state_dict())
    assert set(stacked.state_dict()) - set(joint.state_dict()) == {n for n in norms if "ih" in n}
    assert set(per_gate.state_dict()) == set(joint.state_dict())
    biased = LayerNormGRUVariant(3, 2, 2, update_bias=1.0)
    for layer in range(2):
        assert biased.state_dict()[f"bias_ih_l{layer}"].tolist() == [0, 0, 1, 1, 0, 0]
    assert repr(biased) == "LayerNormGRUVariant(3, 2, num_layers=2, variant=joint, update_bias=1.0)"


def test_an_update_bias_holds_the_state_longer():
    x, moved = draw(1, 50, 3), []
    for bias in (0.0, 2.0):
        torch.manual_seed(0)
        module = LayerNormGRUVariant(3, 8, update_bias=bias, dtype=torch.float64)
        moved.append(float(module(x)[0].detach().abs().mean()))
    assert moved[1] < moved[0] / 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"variant": "paper"}, ValueError, 'variant "paper" is LayerNormGRU'),
        ({"variant": "carried"}, ValueError, "one of joint, stacked, per_gate, got 'carried'"),
        ({"update_bias": float("nan")}, ValueError, "update_bias must be finite"),
        ({"update_bias": 1.0, "bias": False}, ValueError, "update_bias=1.0 needs bias=True"),
        ({"hidden_size": 0}, ValueError, "hidden_size must be positive"),
    ],
)
def test_settings_that_are_refused(options, error, message):
    for kind in (LayerNormGRUVariant, LayerNormGRUVariantCell):
        with pytest.raises(error, match=message):
            kind(**{"input_size": 3, "hidden_size": 4} | options)


def test_there_is_no_fused_path():
    with pytest.raises(
        ValueError, match='"fused" cannot compute this: there is no fused joint gru'
    ):
        LayerNormGRUVariant(3, 4, backend="fused")(torch.zeros(2, 1, 3))


def test_the_definition_refuses_weights_of_another_form():
    x, h = draw(4, 3), draw(2, 4)
    weights = {v: made(v)._weights("_l0") for v in VARIANTS}
    for variant in ("joint", "per_gate"):
        with pytest.raises(ValueError, match=rf'ln_ih must be None: variant "{variant}"'):
            gru_variants.gru(x, None, h, weights["stacked"], variant=variant)
    with pytest.raises((TypeError, ValueError), match="ln_ih"):
        gru_variants.gru(x, None, h, weights["joint"], variant="stacked")
    with pytest.raises(ValueError, match=r"x must have T \* 2 rows"):
        gru_variants.gru(x[:3], None, h, weights["joint"])


def compiled(variant: str) -> None:
    module = shaken(LayerNormGRUVariant(3, 5, variant=variant))
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (2, 4):
        x = torch.randn(3, batch, 3)
        torch.testing.assert_close(captured(x)[0], module(x)[0])


def jobs():
    return {variant: lambda v=variant: compiled(v) for variant in VARIANTS}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_compiled_graph(variant):
    assert outcomes(__file__)[variant] == "ok"


if __name__ == "__main__":
    report(jobs())
