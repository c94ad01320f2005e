"""The cells: the layer's steps, called as torch's cells; how parameters start and print."""

import copy
import inspect

import pytest
import torch
from library.oracle import draw
from recurrent.recurrent_reference import LAYERS, VARIANTS, shaken
from torch import nn

import layernorm

CELLS = {
    "lstm": (layernorm.LayerNormLSTMCell, nn.LSTMCell),
    "gru": (layernorm.LayerNormGRUCell, nn.GRUCell),
    "rnn": (layernorm.LayerNormRNNCell, nn.RNNCell),
}
FORMS = [("lstm", {"variant": v}) for v in VARIANTS]
FORMS += [("lstm", {"proj_size": 2}), ("lstm", {"bias": False})]
FORMS += [("gru", {}), ("gru", {"bias": False})]
FORMS += [("rnn", {}), ("rnn", {"bias": False}), ("rnn", {"nonlinearity": "relu"})]


def first(state):
    return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize(("kind", "options"), FORMS, ids=str)
def test_a_cell_over_time_is_the_layer(kind, options):
    options = {"eps": 0.1, "dtype": torch.float64} | options
    cell = shaken(CELLS[kind][0](3, 4, **options))
    layer = LAYERS[kind](3, 4, backend="reference", **options)
    layer.load_state_dict({f"{name}_l0": p for name, p in cell.state_dict().items()})
    x, state, outputs = draw(6, 2, 3), None, []
    for rows in x:
        state = cell(rows, state)
        outputs.append(first(state))
    y, last = layer(x)
    assert torch.equal(torch.stack(outputs), y)
    both = zip(*((s if isinstance(s, tuple) else (s,)) for s in (state, last)), strict=True)
    assert all(torch.equal(mine, layers[0]) for mine, layers in both)


@pytest.mark.parametrize("kind", CELLS)
def test_one_vector_and_given_states_as_torchs_cell(kind):
    ours, torchs = (c(3, 4, dtype=torch.float64) for c in CELLS[kind])
    x, states = draw(2, 3), tuple(draw(2, 4, seed=s) for s in (1, 2))
    hx = states if kind == "lstm" else states[0]
    one = tuple(s[0] for s in states) if kind == "lstm" else hx[0]
    for cell in (ours, torchs):
        assert first(cell(x[0], one)).shape == first(cell(x[0])).shape == (4,)
        torch.testing.assert_close(first(cell(x[0], one)), first(cell(x, hx))[0])
        assert not torch.equal(first(cell(x, hx)), first(cell(x)))
        empty = first(cell(x[:0]))
        assert empty.shape == (0, 4)


@pytest.mark.parametrize("kind", CELLS)
def test_signatures_begin_as_torchs(kind):
    for ours, torchs in (CELLS[kind], (LAYERS[kind], getattr(nn, kind.upper()))):
        mine = inspect.signature(ours.__init__).parameters
        positional = [p for p in mine.values() if p.kind is not p.KEYWORD_ONLY][1:]
        if "Cell" in torchs.__name__:
            signature = inspect.signature(torchs.__init__).parameters.values()
            assert [(p.name, p.default) for p in positional] == [
                (p.name, p.default) for p in signature if p.name != "self"
            ]
        else:
            built = torchs(*(2, 3, 2), **{p.name: p.default for p in positional[3:]})
            names = ["input_size", "hidden_size", "num_layers"]
            if kind == "rnn":
                names.append("nonlinearity")
            names += ["bias", "batch_first", "dropout", "bidirectional"]
            names += ["proj_size"] * (kind == "lstm") + ["device", "dtype"]
            assert [p.name for p in positional] == names
            assert all(getattr(built, n) == mine[n].default for n in names[3:-2])


@pytest.mark.parametrize("kind", CELLS)
def test_how_parameters_start(kind):
    """Weights uniform within 1/sqrt(H); gains 1, biases 0; drawn anew by reset_parameters."""
    for module in (LAYERS[kind](7, 100, 2, bidirectional=True), CELLS[kind][0](7, 100)):
        before = copy.deepcopy(module.state_dict())
        for name, p in before.items():
            if name.startswith("weight_"):
                assert 0.097 < p.abs().max() <= 0.1
                assert p.mean().abs() < 0.01
            else:
                assert (p == float("_weight" in name)).all(), name
        with torch.no_grad():
            for p in module.parameters():
                p.fill_(9.0)
        torch.manual_seed(1)  # another than the one every test starts from
        module.reset_parameters()
        after = module.state_dict()
        assert not any((p == 9).any() for p in after.values())
        changed = {name for name in after if not torch.equal(after[name], before[name])}
        assert changed == {name for name in after if name.startswith("weight_")}


def test_the_forget_bias_is_b_of_the_forget_gate_alone():
    for module in (
        layernorm.LayerNormLSTM(2, 3, 2, forget_bias=1.5),
        layernorm.LayerNormLSTMCell(2, 3, forget_bias=1.5),
    ):
        for name, p in module.named_parameters():
            if name.startswith("bias_ih"):
                assert p.tolist() == [0.0] * 3 + [1.5] * 3 + [0.0] * 6
            elif name.startswith("ln_"):
                assert (p == float("_weight" in name)).all()


NORMS = {
    "paper": ("ln_ih", "ln_hh", "ln_c"),
    "joint": ("ln_hh", "ln_c"),
    "per_gate": ("ln_hh", "ln_c"),
    "cell_only": ("ln_c",),
    "carried": ("ln_ih", "ln_hh", "ln_c"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_state_dict_keys(variant):
    module = layernorm.LayerNormLSTM(2, 3, 2, bidirectional=True, proj_size=1, variant=variant)
    parts = ["weight_ih", "weight_hh", "bias_ih", "weight_hr"]
    parts += [f"{norm}_{part}" for norm in NORMS[variant] for part in ("weight", "bias")]
    suffixes = ("_l0", "_l0_reverse", "_l1", "_l1_reverse")
    assert set(module.state_dict()) == {part + suffix for part in parts for suffix in suffixes}
    torchs = nn.LSTM(2, 3, 2, bidirectional=True, proj_size=1).state_dict()
    for name, p in module.state_dict().items():
        assert name not in torchs or p.shape == torchs[name].shape
    assert set(layernorm.LayerNormRNN(2, 3).state_dict()) == {
        "weight_ih_l0", "weight_hh_l0", "ln_weight_l0", "ln_bias_l0"
    }  # fmt: skip
    without = set(layernorm.LayerNormRNN(2, 3, bias=False).state_dict())
    assert without == {"weight_ih_l0", "weight_hh_l0", "ln_weight_l0"}


def test_printed_as_torch_prints():
    options = {"num_layers": 2, "bias": False, "batch_first": True, "dropout": 0.5}
    options |= {"bidirectional": True, "proj_size": 2}
    for ours, torchs in ((LAYERS["lstm"], nn.LSTM), (LAYERS["gru"], nn.GRU)):
        if torchs is nn.GRU:
            del options["proj_size"]
        assert str(ours(3, 5, **options)) == f"LayerNorm{torchs(3, 5, **options)}"
        assert str(ours(3, 5)) == f"LayerNorm{torchs(3, 5)}"
    assert (
        str(CELLS["rnn"][0](3, 5, False, "relu")) == f"LayerNorm{nn.RNNCell(3, 5, False, 'relu')}"
    )
    assert str(LAYERS["lstm"](3, 5, eps=0.1, variant="joint")).endswith("eps=0.1, variant=joint)")


@pytest.mark.parametrize("kind", LAYERS)
def test_the_learned_initial_state(kind):
    """It stands where zeros stood, starts as they are, is trained, and yields to a given one."""
    options = {"bidirectional": True, "dtype": torch.float64}
    learned = LAYERS[kind](3, 4, 2, learn_initial_state=True, **options)
    plain, names = LAYERS[kind](3, 4, 2, **options), ("h_0", "c_0")[: learned.states]
    state = learned.state_dict()
    assert set(state) - set(plain.state_dict()) == set(names)
    plain.load_state_dict({k: v for k, v in state.items() if k not in names})
    x = draw(5, 2, 3)
    assert torch.equal(learned(x)[0], plain(x)[0])

    def given(*states):
        return states if kind == "lstm" else states[0]

    rows = [draw(4, 4, seed=3 + k) for k in range(len(names))]
    with torch.no_grad():
        for name, value in zip(names, rows, strict=True):
            getattr(learned, name).copy_(value)
    hx = given(*(s.unsqueeze(1).expand(4, 2, 4) for s in rows))
    assert torch.equal(learned(x)[0], plain(x, hx)[0])
    assert torch.equal(learned(x[:, 0])[0], plain(x[:, 0], given(*rows))[0])
    zeros = given(*(torch.zeros(4, 2, 4).double() for _ in names))
    assert torch.equal(learned(x, zeros)[0], plain(x)[0])
    packed = nn.utils.rnn.pack_sequence([x[:2, 0], x[:, 1]], enforce_sorted=False)
    assert torch.equal(learned(packed)[0].data, plain(packed, hx)[0].data)
    learned(x)[0].sum().backward()
    assert all(getattr(learned, name).grad.any() for name in names)


def test_code_written_for_torchs_layers_calls_flatten_parameters():
    module = layernorm.LayerNormGRU(2, 3)
    assert module.flatten_parameters() is None
