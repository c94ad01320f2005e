"""Exported files, run by onnxruntime, against the modules: other batches and lengths than those of
the example, operators of ONNX alone, and clear refusals."""

import copy
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from apart import outcomes, report
from library.oracle import assert_rounded
from recurrent.recurrent_reference import LAYERS, VARIANTS, shaken
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils import _pytree as pytree

import layernorm
from layernorm import functional
from layernorm import onnx as export_module
from layernorm.recurrent import ZoneoutGRU, ZoneoutGRUVariant, ZoneoutLSTM, layers, with_resets

needs_onnx = pytest.mark.skipif(
    not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))),
    reason="onnx, onnxscript and onnxruntime are not installed: pip install 'layernorm[test]'",
)
KINDS = LAYERS | {
    "gru_variant": layernorm.LayerNormGRUVariant,
    "zoneout lstm": ZoneoutLSTM,
    "zoneout gru": ZoneoutGRU,
    "zoneout gru_variant": ZoneoutGRUVariant,
}
CELLS = {
    "gru_variant": layernorm.LayerNormGRUVariantCell,
    "lstm": layernorm.LayerNormLSTMCell,
    "gru": layernorm.LayerNormGRUCell,
    "rnn": layernorm.LayerNormRNNCell,
}
EPS = 0.125  # exact in single precision
TIMES = {0: "length", 1: "batch"}
BATCH = {0: "batch"}
FORMS = ((4, 3), (6, 2), (1, 1))  # length and batch


def nodes(graph) -> Iterator:
    """All of a graph and of the graphs within."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes(attribute.g)


def same(
    module: nn.Module,
    inputs: tuple,
    dynamic: tuple,
    others: list[tuple],
    norms: int | None = None,
    scans: int = 0,
) -> None:
    """The file gives the module's numbers for the example and for `others`; it has that many Scans
    and, in what is not repeated, LayerNormalizations.

    Float32 to 1e-5, as was asked of the files: onnxruntime has operators of its own, which no
    analysis of the definition's rounding describes. Float64 to 1e-9: rounding alone, over the few
    steps that are run here. In float32 every norm divides by at least the root of EPS: with the
    usual eps, a state whose five units happen to agree multiplies either operator's rounding by a
    hundred."""
    import onnx
    import onnxruntime

    warnings.simplefilter("ignore")  # torch's own, of its deprecated helpers
    module = module.eval()
    tolerance = 1e-9 if inputs[0].dtype == torch.float64 else 1e-5
    with TemporaryDirectory() as folder:
        file = str(Path(folder, "model.onnx"))
        options = {"dynamic_shapes": dynamic, "external_data": False, "verbose": False}
        export_module.export(module, inputs, file, **options)
        model = onnx.load(file)
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(file)
    kinds = [node.op_type for node in nodes(model.graph)]
    assert {node.domain for node in nodes(model.graph)} <= {"", "ai.onnx"}
    assert kinds.count("Scan") == scans, kinds
    assert norms is None or kinds.count("LayerNormalization") == norms, kinds
    names = [i.name for i in session.get_inputs()]
    for given in (inputs, *others):
        flat = [t.numpy() for t in pytree.tree_leaves(given)]
        found = session.run(None, dict(zip(names, flat, strict=True)))
        with torch.no_grad():
            expected = pytree.tree_leaves(module(*given))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(a), b, rtol=tolerance, atol=tolerance)


def layer(kind: str, norms: int, scans: int = 1, dtype=torch.float64, **options) -> None:
    """With the default backend; other batches and lengths, of one as well."""
    module = shaken(KINDS[kind](3, 5, dtype=dtype, eps=EPS, **options))
    inputs = [(torch.randn(*form, 3, dtype=dtype),) for form in FORMS]
    dynamic = {1: "length", 0: "batch"} if options.get("batch_first") else TIMES
    same(module, inputs[0], (dynamic,), inputs[1:], norms, scans)


def with_states(kind: str) -> None:
    """Initial states as inputs of the file, in both directions of two layers."""
    module = shaken(LAYERS[kind](3, 5, 2, bidirectional=True, dtype=torch.float64))
    count = module.states

    def drawn(steps: int, batch: int):
        states = tuple(torch.randn(4, batch, 5).double() for _ in range(count))
        return torch.randn(steps, batch, 3).double(), states if count == 2 else states[0]

    hx = ({1: "batch"},) * 2 if count == 2 else {1: "batch"}
    same(module, drawn(4, 3), (TIMES, hx), [drawn(2, 5)], scans=4)


def many_steps() -> None:
    """Over 50 steps of the usual eps, where the recurrence magnifies rounding beyond any tolerance
    for single steps, the file is as close to the layer in float64 as rounding in float32 allows."""
    import onnxruntime

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module = layernorm.LayerNormLSTM(8, 32).eval()
    x = torch.randn(50, 4, 8)
    with TemporaryDirectory() as folder:
        file = str(Path(folder, "model.onnx"))
        export_module.export(module, (x,), file, external_data=False, verbose=False)
        session = onnxruntime.InferenceSession(file)
    [name] = [i.name for i in session.get_inputs()]
    found = torch.from_numpy(session.run(None, {name: x.numpy()})[0])
    exact = copy.deepcopy(module).double()
    exact.backend = "reference"
    assert_rounded([found], lambda: [exact(x.double())[0]])


class Tied(nn.Module):
    """One tensor in two places: both states, both matrices, the gains of both norms."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = shaken(layernorm.LayerNormLSTM(3, 3, dtype=torch.float64))
        self.lstm.weight_hh_l0 = self.lstm.weight_ih_l0
        self.lstm.ln_hh_weight_l0 = self.lstm.ln_ih_weight_l0

    def forward(self, x, state):
        return self.lstm(x, (state, state))


def tied() -> None:
    drawn = [(torch.randn(t, b, 3).double(), torch.randn(1, b, 3).double()) for t, b in FORMS]
    same(Tied(), drawn[0], (TIMES, {1: "batch"}), drawn[1:], scans=1)


def by_name() -> None:
    """torch.onnx.export's arguments by its own names."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.onnx")
        module = layernorm.LayerNormGRU(3, 5).eval()
        export_module.export(module, f=file, kwargs={"input": torch.ones(4, 2, 3)}, verbose=False)
        assert file.exists()


def one_sequence() -> None:
    module = shaken(layernorm.LayerNormGRU(3, 5, eps=EPS))
    same(module, (torch.randn(4, 3),), ({0: "length"},), [(torch.randn(7, 3),)], 4, 1)


def cell(kind: str, norms: int, **options) -> None:
    module = shaken(CELLS[kind](3, 5, eps=EPS, **options))
    x, other = torch.randn(4, 3), torch.randn(1, 3)
    same(module, (x,), (BATCH,), [(other,)], norms)


def trained_batch_norm(**options) -> nn.Module:
    """With statistics of its own for each of the six steps that it has seen."""
    module = layernorm.BatchNormLSTM(3, 5, max_length=9, eps=EPS, dtype=torch.float64, **options)
    for steps in (6, 4):
        module(torch.randn(steps, 8, 3).double() * torch.arange(1, steps + 1)[:, None, None])
    return module


def batch_norm_lstm(**options) -> None:
    """Shorter and longer than the training was."""
    inputs = [(torch.randn(*form, 3).double(),) for form in ((5, 3), (8, 2), (1, 1))]
    module = trained_batch_norm(**options)
    same(module, inputs[0], (TIMES,), inputs[1:], scans=1 + module.bidirectional)


def norm(module: nn.Module, *form: int, axes: dict[int, str], masked: bool = False) -> None:
    """For every dimension of `axes` also another size."""
    module = shaken(module)
    for name, buffer in module.named_buffers():
        if name.startswith("running"):
            buffer.uniform_(0.5, 2)

    def drawn(add: int) -> tuple:
        x = torch.randn([n + add * (d in axes) for d, n in enumerate(form)])
        return (x, x[:, 0] > 0) if masked else (x,)

    dynamic = (axes, {0: axes[0], 1: axes[2]}) if masked else (axes,)
    layer = isinstance(module, layernorm.LayerNorm)
    same(module, drawn(0), dynamic, [drawn(1)], int(layer))


class Tagger(nn.Module):
    """A user's model: the layer among others, which pack what it is given if there are lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.lstm = layernorm.LayerNormLSTM(3, 5, 2, dropout=0.5, batch_first=True, eps=EPS)
        self.norm = layernorm.LayerNorm(5, eps=EPS)

    def forward(self, words, lengths=None):
        x = self.embedding(words)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.norm(self.lstm(x)[0])


class Episodes(layernorm.LayerNormGRU):
    def __init__(self) -> None:
        super().__init__(3, 5)

    def forward(self, x, resets):
        return with_resets(layernorm.LayerNormGRU(3, 5), x, resets)[0]


def in_a_model() -> None:
    model, words = Tagger(), torch.randint(7, (4, 6))
    same(model, (words,), ({0: "batch", 1: "length"},), [(words[:2, :3],)], 7, 2)


def refused(model: nn.Module, given: tuple, message: str) -> None:
    """And everything is afterwards as it was."""
    before = layers._computer, functional.layer_norm
    warnings.simplefilter("ignore")
    with pytest.raises(export_module.NotExportable, match=message):
        export_module.export(model.eval(), given, verbose=False)
    assert before == (layers._computer, functional.layer_norm)


class DependsOnData(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def reason_of_torch() -> None:
    """What torch says of its own failures is kept."""
    with pytest.raises(Exception) as raised:  # noqa: PT011
        export_module.export(DependsOnData().eval(), (torch.randn(4),), verbose=False)
    assert raised.value.__cause__ is not None


def no_module() -> None:
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, got function"):
        export_module.export(no_module, ())


def jobs() -> dict[str, Callable[[], None]]:
    listed: dict[str, Callable[[], None]] = {}
    norms = {"paper": 3, "joint": 2, "per_gate": 6, "cell_only": 1, "carried": 4}
    assert set(norms) == set(VARIANTS)
    for variant, count in norms.items():
        listed[f"lstm {variant}"] = partial(layer, "lstm", count, variant=variant)
    listed |= {
        "lstm float32": partial(layer, "lstm", 3, dtype=torch.float32),
        "lstm projected": partial(layer, "lstm", 4, proj_size=2, variant="carried", bias=False),
        "lstm learned state": partial(layer, "lstm", 3, learn_initial_state=True),
        "lstm bidirectional": partial(
            layer, "lstm", 12, 4, num_layers=2, bidirectional=True, batch_first=True
        ),
        "gru float32": partial(layer, "gru", 4, dtype=torch.float32),
        "gru bidirectional": partial(layer, "gru", 8, 2, bidirectional=True, bias=False),
        "gru joint": partial(layer, "gru_variant", 1, update_bias=1.0),
        "gru stacked": partial(layer, "gru_variant", 4, 2, variant="stacked", bidirectional=True),
        "gru per gate": partial(layer, "gru_variant", 3, variant="per_gate"),
        "zoneout lstm": partial(
            layer, "zoneout lstm", 6, 2, bidirectional=True, zoneout=0.25, zoneout_cell=0.5,
            learn_initial_state=True,
        ),
        "zoneout gru": partial(layer, "zoneout gru", 4, zoneout=0.25, bias=False),
        "zoneout stacked": partial(
            layer, "zoneout gru_variant", 2, variant="stacked", zoneout=0.25
        ),
        "zoneout joint": partial(
            layer, "zoneout gru_variant", 1, variant="joint", zoneout=0.25, update_bias=1.0
        ),
        "zoneout per gate": partial(
            layer, "zoneout gru_variant", 6, 2, variant="per_gate", zoneout=0.25, bidirectional=True
        ),
        "zoneout none": partial(layer, "zoneout gru", 4, zoneout=0.0),
        "rnn float32": partial(layer, "rnn", 1, dtype=torch.float32),
        "rnn relu": partial(layer, "rnn", 2, 2, num_layers=2, nonlinearity="relu", bias=False),
        "lstm states": partial(with_states, "lstm"),
        "gru states": partial(with_states, "gru"),
        "one sequence": one_sequence,
        "many steps": many_steps,
        "tied": tied,
        "by name": by_name,
        "lstm cell": partial(cell, "lstm", 5, variant="per_gate", proj_size=2),
        "gru cell": partial(cell, "gru", 4),
        "gru joint cell": partial(cell, "gru_variant", 1),
        "gru stacked cell": partial(cell, "gru_variant", 2, variant="stacked"),
        "gru per gate cell": partial(cell, "gru_variant", 3, variant="per_gate"),
        "rnn cell": partial(cell, "rnn", 1),
        "batch norm lstm": partial(batch_norm_lstm, bidirectional=True),
        "batch norm lstm sequence": partial(batch_norm_lstm, statistics="sequence", bias=False),
        "in a model": in_a_model,
        "no module": no_module,
        "reason of torch": reason_of_torch,
        "packed inside": partial(
            refused, Tagger(), (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([2, 3])),
            "a PackedSequence cannot be exported, got one for LayerNormLSTM",
        ),
        "lengths": partial(
            refused, trained_batch_norm(), (torch.randn(4, 2, 3).double(), None, [4, 2]),
            "lengths cannot be exported",
        ),
        "resets": partial(
            refused, Episodes(), (torch.randn(4, 2, 3), torch.zeros(4, 2, dtype=torch.bool)),
            "with_resets cannot be exported",
        ),
        "beyond": partial(
            refused, trained_batch_norm(beyond="error"), (torch.randn(4, 2, 3).double(),),
            'layer.beyond = "last"',
        ),
    }  # fmt: skip
    positions = {0: "batch", 2: "position"}
    for name, module, form, axes in (
        ("LayerNorm", layernorm.LayerNorm(3, eps=EPS), (4, 2, 3), TIMES),
        (
            "LayerNorm reference",
            layernorm.LayerNorm((2, 3), EPS, backend="reference"),
            (4, 2, 3),
            BATCH,
        ),
        ("RMSNorm", layernorm.RMSNorm(3, eps=EPS), (4, 2, 3), TIMES),
        ("GroupNorm", layernorm.GroupNorm(2, 4, eps=EPS), (3, 4, 5), positions),
        ("InstanceNorm", layernorm.InstanceNorm(4, EPS, affine=True), (3, 4, 5), positions),
        ("BatchNorm", layernorm.BatchNorm(4, EPS), (3, 4, 5), positions),
        ("WeightNormLinear", layernorm.WeightNormLinear(3, 2), (4, 2, 3), TIMES),
        ("DynamicTanh", layernorm.DynamicTanh(3), (4, 2, 3), TIMES),
        ("DynamicErf", layernorm.DynamicErf(3, shift=0.2), (4, 2, 3), TIMES),
    ):
        listed[name] = partial(norm, module, *form, axes=axes)
    tracked = layernorm.InstanceNorm(4, track_running_stats=True)
    listed["InstanceNorm tracked"] = partial(norm, tracked, 3, 4, 5, axes=positions)
    masked = layernorm.BatchNorm(4)
    listed["BatchNorm masked"] = partial(norm, masked, 3, 4, 5, axes=positions, masked=True)
    return listed


@needs_onnx
@pytest.mark.parametrize("case", jobs())
def test_the_file_is_the_module(case):
    assert outcomes(__file__)[case] == "ok"


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (nn.Linear(2, 3), {}, ValueError, r"model is in training mode.*model\.eval\(\)"),
        (nn.Sequential(nn.Dropout()).eval().append(nn.Dropout()), {}, ValueError, "training mode"),
        (nn.Linear(2, 3).eval(), {"dynamo": False}, ValueError, "old exporter, which has no Scan"),
    ],
)
def test_what_is_refused_before_anything_is_exported(model, options, error, message):
    with pytest.raises(error, match=message):
        export_module.export(model, (torch.ones(1, 2),), **options)


def test_without_onnxscript(monkeypatch):
    monkeypatch.setattr(export_module, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'layernorm\[onnx\]'"):
        export_module.export(nn.Linear(2, 3).eval(), (torch.ones(1, 2),))


if __name__ == "__main__":
    report(jobs())
