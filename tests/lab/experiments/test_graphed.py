"""Updates as graphs: the same numbers as by the plain trainer. Where there is no GPU, what would be
captured is computed anew in its place; the batches then go the same way."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from layernorm.lab.data.cloze import draw
from layernorm.lab.experiments import get, graphed, run
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.graphed import FEEDS, VARIED, WARM, Graphed, why_not
from layernorm.lab.experiments.transformer.task import Scheduled, ScheduledGraph, schedule
from layernorm.lab.gpu.training import ORDER

CPU = torch.device("cpu")
ONE_FORM = {"mnist": "layer", "convnet": "layer", "draw": "layer", "handwriting": "layer"}
aten = torch.ops.aten


@pytest.fixture
def captured(monkeypatch):
    """The functions that are captured, in place of a GPU's graphs."""
    found, stream = [], SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(graphed, "capture", lambda f, device, memory: found.append(f) or f)
    graphed._tell.cache_clear()
    return found


def config(name, arm="", **options):
    """A run of the profile `book`, of a few updates."""
    arm = arm or ("layer" if "layer" in get(name).arms else next(iter(get(name).arms)))
    return get(name).config("book", arm, 0, **{"updates": 7, "evaluations": 1} | options)


def trained(name, arm="", **options):
    return run.train(config(name, arm, **options), device="cpu", save=False)


def pair(name, arm="", graph=Graphed, plain=run.Trainer, **options):
    """A trainer with graphs and one without, of the same run."""
    made = []
    for kind in (plain, graph):
        torch.manual_seed(0)
        made.append(kind(get(name), config(name, arm, **options), CPU))
    return made


def agree(plain, graph, updates, **tolerance):
    """Both make so many updates; their losses and parameters are the same."""
    for step in range(1, updates + 1):
        plain.update(step)
        graph.update(step)
    assert graph.look() == pytest.approx(plain.look(), rel=1e-9 if tolerance else 0)
    for mine, theirs in zip(plain.parameters, graph.parameters, strict=True):
        torch.testing.assert_close(mine, theirs, **{"rtol": 0, "atol": 0} | tolerance)


@pytest.mark.parametrize(
    ("name", "arm"), [*ONE_FORM.items(), ("mnist", "layer/noise"), ("handwriting", "none")]
)
def test_the_results_are_the_plain_trainers(name, arm, captured, monkeypatch):
    expected = trained(name, arm)
    monkeypatch.setattr(run, "trainer_of", lambda *_: Graphed)
    got = trained(name, arm)
    assert len(captured) == 1
    assert got.result == expected.result


@pytest.mark.parametrize("arm", ["none", "layer", "none/symmetric"])
def test_captions_of_each_length_have_a_graph(arm, captured):
    plain, graph = pair("order_embeddings", arm)
    train, longest = graph.task.train, [0]  # as steps are counted from 1
    for step in range(1, 25):
        longest.append(int(train.lengths[graph.task.batch(step)[1]].max()))
    agree(plain, graph, 24)
    assert {key[1][2] for key in graph.forms} == set(longest[1:])
    later = {n for step, n in enumerate(longest) if step > WARM and n in longest[1:step]}
    assert 1 < len(captured) == len(later)
    assert graph.task.train is train


def test_what_exceeds_the_number_of_graphs_is_launched_as_ever(captured, monkeypatch, capsys):
    monkeypatch.setattr(graphed, "MOST", 1)
    plain, graph = pair("order_embeddings")
    agree(plain, graph, 24)
    assert len(captured) == len(graph.forms) == 1
    assert capsys.readouterr().err.count("more than 1 forms") == 1


@pytest.mark.parametrize("arm", ["none", "layer", "rescaled"])
@pytest.mark.parametrize("examples", [None, 16])
def test_stories_padded_further_give_the_same(arm, examples, captured):
    """In double precision, so that only the order of sums differs."""
    torch.set_default_dtype(torch.float64)
    try:
        plain, graph = pair("attentive_reader", arm, examples=examples, batch_size=16)
        agree(plain, graph, 8, rtol=1e-7, atol=1e-9)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(captured) == 1


def test_a_few_graphs_are_enough_for_the_papers_stories():
    """Its lengths are 48 of passages and six of questions."""
    options = get("attentive_reader").config("paper", "layer", 0).options
    world, count = options.world(), options.batch_size
    task = SimpleNamespace(batch=lambda step: draw(world, count, generator(0, step)))
    feed = FEEDS["AttentiveReader"](task)
    plain = {tuple(task.batch(step).passages.shape) for step in range(1, 41)}
    drawn = [feed.draw(step) for step in range(1, 41)]
    found = {(one["passages"].shape, one["questions"].shape) for one in drawn}
    assert len(found) <= 8 < len(plain)
    assert all(one["passages"].shape[1] % graphed.WIDTH == 0 for one in drawn)


class Waits(TorchDispatchMode):
    """Refuses operations that need the CPU: a graph could not hold them."""

    refused = (
        *(aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default),
        *(aten.equal.default, aten.randperm.generator, aten.rand.generator),
        *(aten.randn.generator, aten.randint.low_generator, aten.randint.generator),
    )

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function not in self.refused, function
        if function is aten.lift_fresh.default:  # `x[0] = 1.0` makes one, too
            assert args[0].dim() == 0, "a tensor from Python's numbers"
        if function is aten.index.Tensor:
            assert all(i is None or i.dtype == torch.int64 for i in args[1]), "a mask as an index"
        return function(*args, **(kwargs or {}))


FED = [
    *(("mnist", arm) for arm in ("none", "layer", "batch", "batch/unbiased-4", "layer/noise")),
    *(("convnet", arm) for arm in ("none", "layer", "batch")),
    *((name, arm) for name in ("draw", "handwriting") for arm in ("none", "layer")),
    *(("order_embeddings", arm) for arm in ("none", "layer", "none/symmetric")),
    *(("attentive_reader", arm) for arm in ("none", "layer")),
    *(("transformer", arm) for arm in ("none", "layer", "layer/little/dropout", "derf/muon")),
]


def test_every_experiment_that_is_captured_is_among_them():
    made = {n: get(n).task(config(n).options, 0, CPU) for n in ORDER}
    assert {name for name, _ in FED} == {name for name, task in made.items() if not why_not(task)}


@pytest.mark.parametrize(("name", "arm"), FED)
def test_nothing_that_is_captured_needs_the_cpu(name, arm, captured):
    _, graph = pair(name, arm, run.trainer_of(get(name), torch.device("cuda"), Workers()))
    for step in range(1, 30):
        if captured:
            break
        graph.update(step)
    with Waits():
        captured[0]()


@pytest.mark.parametrize(
    "options", [{}, {"optimizer": "muon"}, {"examples": 8, "batch_size": 4}], ids=str
)
def test_a_changing_rate_is_what_the_graph_reads(options, captured):
    """In double precision, so that only the order of operations differs."""
    options |= {"updates": 9, "warmup": 0.5, "learning_rate": 0.02}
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(0)
        plain = Scheduled(get("transformer"), config("transformer", **options), CPU)
        torch.manual_seed(0)
        graph = ScheduledGraph(get("transformer"), config("transformer", **options), CPU)
        for step in range(1, 10):
            if step == 6:
                state = graph.state()
                graph = ScheduledGraph(get("transformer"), config("transformer", **options), CPU)
                graph.restore(state)
            plain.update(step)
            graph.update(step)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(captured) == 2
    rates = [float(group["lr"]) for group in graph.optimizer.param_groups]
    assert rates == pytest.approx([schedule(9, 9, 0.5) * 0.02] * len(rates), rel=1e-12)
    for mine, theirs in zip(plain.parameters, graph.parameters, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "arm", "why"),
    [
        ("attentive_reader", "batch", "as many rows at a step as stories go on"),
        ("skip_thoughts", "layer", "three lengths"),
        ("adding", "paper", "not made of the updates of Lagged"),
    ],
)
def test_where_shapes_differ_nothing_is_captured_and_the_run_says_so(
    name, arm, why, captured, capsys
):
    trainers = [Graphed(get(name), config(name, arm), CPU) for _ in range(2)]
    assert why in why_not(trainers[0].task)
    trainers[0].update(1)
    assert captured == []
    assert trainers[0].kept == 1
    said = capsys.readouterr().err
    assert said.count(f"{name} is trained kernel by kernel, not by graphs") == 1
    assert why in said


@pytest.mark.parametrize(("name", "updates"), [("mnist", 10), ("order_embeddings", 24)])
def test_a_run_that_goes_on_is_captured_anew_with_the_same_numbers(name, updates, captured):
    def make():
        torch.manual_seed(0)
        return Graphed(get(name), config(name), CPU)

    half = updates // 2
    whole, begun = make(), make()
    for step in range(1, updates + 1):
        whole.update(step)
    for step in range(1, half):
        begun.update(step)
    again = make()
    again.restore(begun.state())
    forms = again.forms
    again.restore(begun.state())
    assert again.forms is not forms
    before = len(captured)
    for step in range(half, updates + 1):
        again.update(step)
    assert len(captured) > before
    assert torch.equal(whole.losses[half - 1 : updates], again.losses[: updates - half + 1])
    for mine, theirs in zip(whole.parameters, again.parameters, strict=True):
        assert torch.equal(mine, theirs)


def test_no_capture_before_libraries_have_set_themselves_up(captured):
    _, graph = pair("mnist")
    counts = []
    for step in range(1, WARM + 3):
        graph.update(step)
        counts.append(len(captured))
    assert counts == [0] * WARM + [1, 1]
    assert all(group["capturable"] for group in graph.optimizer.param_groups)  # Adam insists on it


def test_a_trainer_that_was_captured_and_goes_back_begins_anew(captured):
    """Its graphs read tensors of the state that was replaced."""
    _, graph = pair("mnist")
    for step in range(1, WARM + 2):
        graph.update(step)
    memory = graph.memory
    graph.restore(graph.state())
    assert (graph.forms, graph.updates) == ({}, 0)
    assert graph.memory is not memory
    for step in range(1, WARM + 2):
        graph.update(step)
    assert len(captured) == 2


def test_an_update_beside_waits_for_what_came_before_and_is_waited_for(captured, monkeypatch):
    said = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            said.append(f"{self.name} waits for {other.name}")

    beside, main = Stream("beside"), Stream("main")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: beside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    _, graph = pair("mnist")
    graph._beside(lambda: said.append("computed"))
    assert said == ["beside waits for main", "computed", "main waits for beside"]


def test_graphs_of_a_run_share_their_memory(monkeypatch):
    """Each is captured while the function is computed, and replayed as it is."""
    pools, said = [], []

    class Graph:
        def replay(self):
            said.append("replayed")

    @contextmanager
    def graph(made, pool):
        pools.append(pool)
        said.append("begun")
        yield
        said.append("ended")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: said.append("waited"))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    memory, others = [], []
    replay = graphed.capture(lambda: said.append("computed"), CPU, memory)
    assert said == ["waited", "begun", "computed", "ended"]
    replay()
    assert said[4:] == ["replayed"]
    graphed.capture(lambda: None, CPU, memory)
    graphed.capture(lambda: None, CPU, others)
    assert pools[0] is pools[1] is memory[0]
    assert pools[2] is others[0] is not memory[0]


def test_evaluating_draws_as_ever(captured):
    """Tasks that draw in an evaluation, too, draw what is new, and updates go on from the graph."""
    trainer = Graphed(get("draw"), config("draw"), CPU)
    plain = run.Trainer(get("draw"), config("draw"), CPU)
    plain.model.load_state_dict(trainer.model.state_dict())
    for step in range(1, 6):
        trainer.update(step)
        plain.update(step)
        assert trainer.evaluate() == plain.evaluate()
    assert trainer.look() == plain.look()


def test_a_gpu_has_graphs_and_several_processes_have_not():
    gpu, alone = torch.device("cuda"), Workers()
    assert run.trainer_of(get("mnist"), gpu, alone) is Graphed
    assert run.depends_on(get("mnist"), gpu, alone)[-1] is Graphed
    assert run.depends_on(get("transformer"), gpu, alone)[-2:] == [Scheduled, ScheduledGraph]
    assert Graphed not in run.depends_on(get("mnist"), CPU, alone)
    assert run.depends_on(get("mnist"), gpu, Workers(0, 2))[-1] is Workers
    assert run.trainer_of(get("mnist"), CPU, alone) is run.Trainer
    assert run.trainer_of(get("mnist"), gpu, Workers(0, 2)) is run.Trainer
    assert run.trainer_of(get("transformer"), gpu, alone) is ScheduledGraph
    assert run.trainer_of(get("transformer"), CPU, alone) is Scheduled
    assert run.trainer_of(get("transformer"), gpu, Workers(0, 2)) is Scheduled


def test_every_experiment_for_gpus_has_a_feed_or_a_reason():
    kinds = {get(name).task.__name__ for name in ORDER}
    assert kinds == FEEDS.keys() | VARIED.keys()
    assert not FEEDS.keys() & VARIED.keys()
