"""Generated lines of handwriting: the letters that the text says, other writers in each part, and
offsets that lead back to the pen's places; a guess's likelihood, fitted by hand."""

import math
import re

import numpy as np
import pytest
import torch

from layernorm.lab.data import handwriting as hw

LINES = hw.draw(lines=12, points=80, writers=3, seed=0)


def test_the_same_seed_draws_the_same_lines_and_another_one_others():
    again = hw.draw(lines=12, points=80, writers=3, seed=0)
    assert again.sha256() == LINES.sha256()
    assert hw.draw(lines=12, points=80, writers=3, seed=1).sha256() != LINES.sha256()


def test_lines_have_their_points_in_whole_units_and_begin_at_rest():
    assert LINES.points.shape == (12, 80, 3)
    assert LINES.lengths.tolist() == [80] * 12
    moves, lifted = LINES.points[..., :2], LINES.points[..., 2]
    assert (moves == moves.round()).all()
    assert (moves[:, 0] == 0).all()
    assert set(lifted.unique().tolist()) == {0.0, 1.0}


def test_the_places_come_back_from_the_offsets():
    line = LINES.points[0]
    parts = hw.strokes(line)
    assert len(parts) == 1 + int(line[:-1, 2].sum())
    places = np.concatenate(parts)
    np.testing.assert_array_equal(np.diff(places, axis=0), line[1:, :2])


def test_a_letter_is_the_fonts_letter_as_its_writer_shapes_it():
    """An `l` of futural is one stroke straight up or down: sheared by the slant, scaled by size."""
    plain = hw.Hand("futural", 1.0, 1.0, 0.0, 0.0, 3.0, 0.0)
    (stroke,), advance = hw._letter(plain, "l")
    slanted = hw.Hand("futural", 2.0, 1.0, 0.5, 1.0, 3.0, 0.0)
    (leaning,), further = hw._letter(slanted, "l")
    rise = stroke[-1] - stroke[0]
    assert rise[0] == 0
    assert abs(rise[1]) == 21
    np.testing.assert_allclose(leaning[-1] - leaning[0], [0.5 * 2 * rise[1], 2 * rise[1]])
    assert further == 2 * (advance + 1)
    steps = np.hypot(*np.diff(leaning, axis=0).T)
    np.testing.assert_allclose(steps, steps[0])
    assert steps[0] == pytest.approx(3.0, rel=0.1)


def test_the_text_ends_with_the_letter_that_was_begun():
    """As many strokes as its letters have, the last ones perhaps cut off."""
    by = hw.Hand("futural", 1.0, 1.0, 0.0, 0.0, 3.0, 0.0)
    for seed in range(20):
        points, text = hw._line(by, 60, hw.LETTERS, np.random.default_rng(seed))
        counts = [sum(map(len, hw._letter(by, c)[0])) for c in text if c != " "]
        assert len(points) == 60
        assert sum(counts[:-1]) < 60 <= sum(counts)
        assert text[-1] != " "


def test_letters_are_even_and_words_short():
    drawn = hw.draw(lines=100, points=700, writers=20, seed=2)
    text = " ".join(hw.said(drawn))
    counts = np.array([text.count(c) for c in hw.LETTERS[1:]])
    expected = counts.sum() / 26
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 66  # of 25 degrees of freedom: 1 in 100,000
    assert {len(word) for word in text.split()} >= set(range(2, 8))
    assert max(map(len, text.split())) == 7


def test_only_the_letters_asked_for():
    assert set("".join(hw.said(hw.draw(4, 100, 2, 0, letters="abc ")))) <= set("abc ")


def test_standardized_offsets_have_mean_0_and_deviation_1_and_others_the_same_scale():
    train = LINES.standardized()
    assert train.points[..., :2].mean((0, 1)).abs().max() < 1e-5
    torch.testing.assert_close(train.points[..., :2].reshape(-1, 2).std(0), torch.ones(2))
    other = hw.draw(4, 80, 2, seed=9)
    scaled = other.standardized(train)
    back = scaled.points[..., :2] * train.scale[1] + train.scale[0]
    torch.testing.assert_close(back, other.points[..., :2], rtol=1e-4, atol=1e-3)


def test_padding_is_left_out_of_the_scale():
    short = hw.gathered([(np.array([[1.0, 2, 0], [3, 6, 1]]), [1]), (np.array([[5.0, 1, 1]]), [2])])
    assert short.lengths.tolist() == [2, 1]
    scaled = short.standardized()
    torch.testing.assert_close(scaled.scale[0], torch.tensor([3.0, 3.0]))
    torch.testing.assert_close(scaled.scale[1], torch.tensor([2.0, math.sqrt(7)]))
    assert (scaled.points[1, 1] == 0).all()


def test_unknown_characters_are_refused_by_name():
    with pytest.raises(ValueError, match=re.escape("unknown character '!', 'é'; there are ")):
        hw.numbers("café!")
    with pytest.raises(ValueError, match="unknown character 'A'"):
        hw.draw(1, 10, 1, 0, letters="Aa")


@pytest.mark.parametrize("name", ["lines", "points", "writers"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        hw.draw(**{"lines": 1, "points": 5, "writers": 1, "seed": 0, name: 0})


def test_the_guess_that_goes_straight_on_on_lines_that_do():
    """Offsets that are 0.9 times the one before plus noise of deviation 0.1, a pen that is lifted
    every tenth time, wherever it was: the cost is the entropy of both, ln(2πe 0.01) and that of
    1/10."""
    random = np.random.default_rng(0)

    def made(n):
        moves = np.zeros((n, 2))
        for t in range(1, n):
            moves[t] = 0.9 * moves[t - 1] + random.normal(0, 0.1, 2)
        lifted = random.random(n) < 0.1
        return hw.gathered([(np.column_stack([moves, lifted]), [1])])

    n = 20_000
    worth = hw.straight_on(made(n), made(n))
    entropy = math.log(2 * math.pi * math.e * 0.01) - 0.1 * math.log(0.1) - 0.9 * math.log(0.9)
    # of one point: 1 from two squared normals over 2, log(9) sqrt(0.09) from the pen
    assert abs(worth - entropy) < 5 * math.sqrt(2) * (1 + 0.66) / math.sqrt(n)
