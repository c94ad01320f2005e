"""Values and gradients of the recurrent layers against an independent net, vector by vector."""

import copy
import functools
import itertools
from typing import NamedTuple

import pytest
import torch
from library.oracle import assert_rounded, draw
from recurrent.recurrent_reference import LAYERS, NETS, VARIANTS, backends, net, shaken, usable
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from layernorm.recurrent import definition


class Case(NamedTuple):
    kind: str
    layers: int
    bidirectional: bool
    form: str  # how the sequences come: padded, batch_first, packed, unsorted or single
    bias: bool
    given: bool  # whether initial states are
    options: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        words = [self.kind, str(self.layers), self.form]
        words += [w for w in ("bidirectional", "bias", "given") if getattr(self, w)]
        return "-".join(words + [str(v) for _, v in self.options])


FORMS = ("padded", "batch_first", "packed", "unsorted", "single")
LSTMS = [(("variant", v),) + ((("proj_size", p),) if p else ()) for v in VARIANTS for p in (0, 2)]
KINDS = [("lstm", options) for options in LSTMS] + [("gru", ())] * 3
KINDS += [("rnn", ()), ("rnn", (("nonlinearity", "relu"),))]


def cases() -> list[Case]:
    """Every form with one and two layers and both directions for a kind; what else can be chosen
    walks through its values beside them."""
    grid = itertools.product((1, 2), (False, True), FORMS)
    rest = itertools.cycle(itertools.product((True, False), (False, True)))
    kinds = itertools.cycle(KINDS)
    found = []
    for (layers, both, form), n in itertools.product(grid, range(2)):
        (kind, options), (bias, given) = next(kinds), next(rest)
        if n == 1:
            bias, given = next(rest)
        found.append(Case(kind, layers, both, form, bias, given, options))
    return list(dict.fromkeys(found))


def made(case: Case, hidden: int = 4, backend: str = "reference"):
    """The layer; its eps is one that nothing can have built in."""
    options = {"eps": 0.1} | dict(case.options)
    module = LAYERS[case.kind](
        3, hidden, case.layers, bias=case.bias, batch_first=case.form == "batch_first",
        bidirectional=case.bidirectional, dtype=torch.float64, backend=backend, **options,
    )  # fmt: skip
    return shaken(module)


def given(module, batch: int) -> list[torch.Tensor]:
    rows = module.num_layers * (1 + module.bidirectional)
    sizes = module._state_sizes()
    return [draw(rows, batch, n, seed=40 + n + k) for k, n in enumerate(sizes)]


def run(module, case: Case, sequences, initial):
    """The module's outputs, one for each sequence, and its last states (L D, B, ...)."""
    hx = tuple(initial) if module.states == 2 else initial[0]
    if case.form == "single":
        hx = tuple(s[:, 0] for s in initial)
        y, last = module(
            sequences[0], (hx if module.states == 2 else hx[0]) if case.given else None
        )
        last = last if module.states == 2 else (last,)
        return [y], [s.unsqueeze(1) for s in last]
    if case.form in ("packed", "unsorted"):
        x = pack_sequence(sequences, enforce_sorted=case.form == "packed")
        y, last = module(x, hx if case.given else None)
        outputs = unpack_sequence(y)
    else:
        dim = 0 if case.form == "batch_first" else 1
        y, last = module(torch.stack(sequences, dim), hx if case.given else None)
        outputs = y.unbind(dim)
    return list(outputs), list(last if module.states == 2 else (last,))


def lengths(case: Case, longest: int) -> list[int]:
    return {
        "packed": [longest, max(1, longest // 2), max(1, longest // 2), 1],
        "unsorted": [2, longest, 1, longest - 1],
        "single": [longest],
    }.get(case.form, [longest] * 3)


def results(case: Case, longest: int, hidden: int, backend: str, compute) -> list[torch.Tensor]:
    """Outputs, last states, and the gradients of all parameters, inputs and initial states, of a
    loss that weighs every number differently."""
    module = made(case, hidden, backend)
    sizes = lengths(case, longest)
    sequences = [draw(n, 3, seed=k).requires_grad_() for k, n in enumerate(sizes)]
    initial = given(module, len(sizes))
    initial = [s.requires_grad_(case.given) if case.given else torch.zeros_like(s) for s in initial]
    outputs, last = compute(module, sequences, initial)
    values = [*outputs, *last]
    loss = sum((draw(*v.shape, seed=70 + k) * v).sum() for k, v in enumerate(values))
    wanted = [*sequences, *module.parameters(), *(initial if case.given else ())]
    return [*values, *torch.autograd.grad(loss, wanted, allow_unused=True)]


@functools.cache
def independent(case: Case, longest: int, hidden: int) -> list[torch.Tensor]:
    return results(case, longest, hidden, "reference", net)


def compare(case: Case, backend: str, longest: int, tolerance: float, hidden: int = 4) -> None:
    usable(backend)
    computed = results(case, longest, hidden, backend, lambda *a: run(a[0], case, *a[1:]))
    for got, expected in zip(computed, independent(case, longest, hidden), strict=True):
        assert got is not None, "no gradient arrives"
        assert got.shape == expected.shape
        scale = max(1.0, float(expected.detach().abs().max()))
        assert float((got - expected).detach().abs().max()) <= tolerance * scale


COMPUTED = [(c, b) for c in cases() for b in backends(c.kind, "proj_size" in dict(c.options))]


@pytest.mark.parametrize(("case", "backend"), COMPUTED, ids=str)
def test_values_and_gradients_are_the_independent_nets(case, backend):
    compare(case, backend, longest=4, tolerance=1e-11)


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("hidden", [1, 2, 9, 16, 33])
@pytest.mark.parametrize(("kind", "form"), [("lstm", "unsorted"), ("gru", "padded")])
def test_awkward_sizes(kind, form, hidden, backend):
    compare(Case(kind, 1, hidden == 9, form, True, True), backend, 3, 1e-11, hidden)


LONG = [("lstm", (("variant", v),)) for v in VARIANTS] + [("gru", ()), ("rnn", ())]
LONG = [(*net, backend) for net in LONG for backend in backends(net[0])]


@pytest.mark.parametrize(("kind", "options", "backend"), LONG, ids=str)
def test_many_steps(kind, options, backend):
    compare(Case(kind, 1, False, "packed", True, True, options), backend, 17, 1e-11, hidden=7)


@pytest.mark.parametrize(("kind", "backend"), NETS)
def test_float32_is_as_close_as_rounding_allows(kind, backend):
    usable(backend)
    low = shaken(LAYERS[kind](11, 24, backend=backend))
    exact = LAYERS[kind](11, 24, backend="reference", dtype=torch.float64)
    exact.load_state_dict(low.state_dict())  # the very same numbers
    x, slope = draw(6, 5, 11).float(), draw(6, 5, 24, seed=50).float()
    compute = functools.partial(gradients, exact, x.double(), slope.double())
    assert_rounded(gradients(low, x, slope), compute)


def gradients(module, x, slope) -> list[torch.Tensor]:
    """The outputs, and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    y = module(x)[0]
    return [y.detach(), *torch.autograd.grad((y * slope).sum(), [x, *module.parameters()])]


@pytest.mark.parametrize("sizes", [None, torch.zeros(0, dtype=torch.int64)], ids=str)
def test_the_definition_of_no_steps_is_the_initial_state(sizes):
    module = LAYERS["lstm"](3, 5, dtype=torch.float64)
    h0, c0 = draw(2, 5), draw(2, 5, seed=1)
    y, h, c = definition.lstm(draw(0, 3), sizes, h0, c0, module._weights("_l0"))
    assert y.shape == (0, 5)
    assert torch.equal(h, h0)
    assert torch.equal(c, c0)


@pytest.mark.parametrize("kind", LAYERS)
def test_every_tensor_is_made_on_the_device_of_the_parameters(kind):
    """On the meta device, where nothing is computed: one tensor elsewhere would be an error."""
    module = LAYERS[kind](3, 5, 2, bidirectional=True, device="meta")
    rows = torch.zeros(6, 3, device="meta")
    for x in (rows.view(3, 2, 3), PackedSequence(rows, torch.tensor([2, 2, 1, 1]))):
        y, last = module(x)
        values = [y.data, *(last if isinstance(last, tuple) else (last,))]
        assert all(v.device.type == "meta" for v in values)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("form", ["padded", "unsorted"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_gpus_numbers(kind, form):
    """Values and gradients on a GPU are the processor's; backend auto finds its way."""
    case = Case(kind, 2, True, form, True, False)
    module = made(case)
    module.backend = "auto"
    sequences = [draw(n, 3, seed=k) for k, n in enumerate(lengths(case, 5))]
    results = []
    for device in ("cpu", "cuda"):
        twin = copy.deepcopy(module).to(device)
        outputs, last = run(twin, case, [s.to(device) for s in sequences], given(module, 4))
        values = [*outputs, *last]
        assert all(v.device.type == device for v in values)
        grads = torch.autograd.grad(sum(v.square().sum() for v in values), [*twin.parameters()])
        results.append([t.cpu() for t in (*values, *grads)])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
