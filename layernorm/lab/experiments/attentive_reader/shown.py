"""A reader's attention to the words of a story, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float, Int
from torch import Tensor

from layernorm.lab.data.cloze import Stories, World, said

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def attention_bars(
    ax: Axes,
    title: str,
    world: World,
    stories: Stories,
    case: int,
    answers: Int[Tensor, " n"],
    attention: Float[Tensor, "n t"],
) -> None:
    """Draw a bar for the attention to each word of a story, and mark where the right name stands.

    The title ends with the question, the right answer and the reader's.

    Args:
        case: the story's place among `stories`.
        answers: the reader's, to all stories.
        attention: the weights of all words of all stories.
    """
    n, right = int(stories.lengths[case]), stories.answers[case]
    words, look = stories.passages[case][:n], {"rotation": 90, "fontsize": 8}
    heights = attention[case, :n].tolist()
    ax.bar(range(n), heights, color="#0072b2")
    for at in (words == right).nonzero().flatten().tolist():
        ax.annotate("answer", (at, heights[at] + 0.03), ha="center", color="#a04000", **look)
    ax.set_xticks(range(n), [said(world, word) for word in words.split(1)], **look)
    question = said(world, stories.questions[case])
    told = f"{said(world, right[None])}; it says {said(world, answers[case][None])}"
    ax.set_title(f"{title}: {question} → {told}", fontsize=9)
    ax.set(ylabel="attention", ylim=(0, 1))
