"""Updates as graphs: the same numbers as by the plain trainer. Where there is no GPU, what would be
captured is computed anew in its place; the batches then go the same way."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from layernorm.lab.experiments import get, graphed, run
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.graphed import FEEDS, Graphed, why_not
from layernorm.lab.experiments.transformer.task import Scheduled, ScheduledGraph, schedule

CPU = torch.device("cpu")
EXPERIMENTS = ("mnist", "convnet", "draw")
OTHERS = ("order_embeddings", "attentive_reader", "handwriting", "skip_thoughts")


@pytest.fixture
def captured(monkeypatch):
    """The functions that are captured, in place of a GPU's graphs."""
    found, stream = [], SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(graphed, "capture", lambda f, device: found.append(f) or f)
    return found


def config(name, **options):
    """A run of the profile `book`, of a few updates."""
    arm = "layer" if "layer" in get(name).arms else next(iter(get(name).arms))
    return get(name).config("book", arm, 0, **{"updates": 7, "evaluations": 1} | options)


def trained(name, **options):
    return run.train(config(name, **options), device="cpu", save=False)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_results_are_the_plain_trainers(name, captured, monkeypatch):
    expected = trained(name)
    monkeypatch.setattr(run, "_trainer", lambda *_: Graphed)
    got = trained(name)
    assert len(captured) == 1
    assert got.result == expected.result


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


@pytest.mark.parametrize("name", OTHERS)
def test_where_shapes_differ_nothing_is_captured(name, captured):
    trainer = Graphed(get(name), config(name), CPU)
    assert "not fixed" in why_not(trainer.task)
    trainer.update(1)
    assert captured == []
    assert trainer.kept == 1


def test_a_run_that_goes_on_is_captured_anew_with_the_same_numbers(captured):
    def make():
        torch.manual_seed(0)
        return Graphed(get("mnist"), config("mnist"), CPU)

    whole, begun = make(), make()
    for step in range(1, 11):
        whole.update(step)
    for step in range(1, 5):
        begun.update(step)
    again = make()
    again.restore(begun.state())
    for step in range(5, 11):
        again.update(step)
    assert len(captured) == 3
    assert torch.equal(whole.losses[4:10], again.losses[:6])
    for mine, theirs in zip(whole.parameters, again.parameters, strict=True):
        assert torch.equal(mine, theirs)


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
    assert run._trainer(get("mnist"), gpu, alone) is Graphed
    assert run._trainer(get("mnist"), CPU, alone) is run.Trainer
    assert run._trainer(get("mnist"), gpu, Workers(0, 2)) is run.Trainer
    assert run._trainer(get("transformer"), gpu, alone) is ScheduledGraph
    assert run._trainer(get("transformer"), CPU, alone) is Scheduled
    assert run._trainer(get("transformer"), gpu, Workers(0, 2)) is Scheduled


def test_every_feed_is_of_a_task_that_there_is():
    kinds = {get(name).task.__name__ for name in (*EXPERIMENTS, "transformer")}
    assert kinds == set(FEEDS)
    assert why_not(SimpleNamespace()) != ""
    noisy = type("Mnist", (), {"noise": [1]})
    assert "noise" in why_not(noisy())
