"""The first page's picture shows the numbers that the definition gives, of the row asked for."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from layernorm.lab import pictures

A = torch.tensor([[2.0, 0, 1, 4], [1, 3, 5, 7], [6, 2, 0, 3]]).double()


@pytest.fixture(autouse=True)
def figures():
    backend = matplotlib.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)


def words():
    return [text.get_text() for ax in plt.gcf().axes for text in ax.texts]


@pytest.mark.parametrize(
    ("row", "normalized", "said"),
    [
        (1, ["-1.34", "-0.45", "0.45", "1.34"], "mean 4, standard\ndeviation 2.24"),
        (0, ["0.17", "-1.18", "-0.51", "1.52"], "mean 2, standard\ndeviation 1.48"),
    ],
)
def test_the_marked_row_is_normalized(row, normalized, said):
    pictures.row_and_block(A, row, column=2)
    assert said in words()
    assert [word for word in words() if "." in word and word in normalized] == normalized
    assert words().count(f"example {row + 1}") == 2


def test_the_block_has_two_norms_each_before_what_it_feeds():
    pictures.row_and_block(A, 1, 2)
    blocks = [word for word in words() if word in pictures.BLOCKS]
    assert blocks == ["layer norm", "attention", "+", "layer norm", "MLP", "+"]


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        (3, 0, "row must be from 0 to 2, as a has 3; got 3"),
        (0, -1, "column must be from 0 to 3, as a has 4; got -1"),
    ],
)
def test_a_row_or_column_that_is_not_there_is_refused(row, column, message):
    with pytest.raises(ValueError, match=message):
        pictures.row_and_block(A, row, column)
