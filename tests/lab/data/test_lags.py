"""The tasks with long lags: their targets can be worked out from the inputs, and guessing costs
what they say."""

import math

import pytest
import torch

from layernorm.lab.data.lags import REMEMBERED, SYMBOLS, TASKS, adding, copy_memory


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("steps", [2, 3, 50])
def test_the_sum_is_that_of_the_two_marked_numbers_one_in_each_half(steps):
    x, y = adding(200, steps, generator())
    numbers, markers = x.unbind(-1)
    assert set(markers.unique().tolist()) == {0.0, 1.0} or steps == 2
    assert torch.equal(markers[: steps // 2].sum(0), torch.ones(200))
    assert torch.equal(markers[steps // 2 :].sum(0), torch.ones(200))
    torch.testing.assert_close((numbers * markers).sum(0), y[0])
    assert ((numbers >= 0) & (numbers < 1)).all()


def test_every_step_is_marked_in_some_case():
    x, _ = adding(2000, 20, generator())
    assert (x[..., 1].sum(1) > 0).all()


@pytest.mark.parametrize("lag", [0, 1, 30])
def test_the_symbols_come_first_then_blanks_then_now(lag):
    x, y = copy_memory(100, lag, generator())
    assert torch.equal(x.sum(-1), torch.ones(lag + 2 * REMEMBERED, 100))
    named = x.argmax(-1)
    assert torch.equal(named[:REMEMBERED], y)
    assert (named[REMEMBERED:-REMEMBERED] == SYMBOLS).all()
    assert (named[-REMEMBERED] == SYMBOLS + 1).all()
    assert (named[-REMEMBERED + 1 :] == SYMBOLS).all()
    assert len(y.unique()) == SYMBOLS


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_guess_costs_what_the_task_says_and_the_truth_nothing(task):
    x, y = task.draw(20000, 6, generator())
    assert x.shape[-1] == task.inputs
    if task.name == "adding":
        guess, truth = torch.ones(*y.shape, 1), y.unsqueeze(-1)
    else:
        guess = torch.zeros(*y.shape, task.outputs)
        truth = 100.0 * torch.nn.functional.one_hot(y, task.outputs)
    assert task.loss(guess, y).item() == pytest.approx(task.guess, rel=0.03)
    assert task.loss(truth, y).item() < 1e-6


def test_no_guess_is_better_than_the_best_one():
    _, y = adding(20000, 6, generator())
    losses = [TASKS["adding"].loss(torch.full((*y.shape, 1), v), y) for v in (0.9, 1.0, 1.1)]
    assert min(losses) == losses[1]
    assert TASKS["copy"].guess == math.log(8)


@pytest.mark.parametrize("draw", [adding, copy_memory])
def test_the_same_generator_gives_the_same_sequences(draw):
    for a, b in zip(draw(5, 10, generator(1)), draw(5, 10, generator(1)), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(draw(5, 10, generator(1))[1], draw(5, 10, generator(2))[1])


def test_impossible_lengths_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 2, one for each marked"):
        adding(5, 1, generator())
    with pytest.raises(ValueError, match="lag must be a number of blank steps, at least 0, got -1"):
        copy_memory(5, -1, generator())
