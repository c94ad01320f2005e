"""The picture of a reader's attention."""

import matplotlib
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from layernorm.lab.data.cloze import World, draw, said
from layernorm.lab.experiments.attentive_reader.shown import attention_bars


def test_a_word_has_a_bar_and_the_right_name_is_marked():
    world = World()
    stories = draw(world, 4, torch.Generator().manual_seed(0))
    case = int((stories.passages == stories.answers[:, None]).any(1).nonzero()[0])
    weights = torch.rand(stories.passages.shape)
    answers = stories.answers.roll(1)
    _, ax = plt.subplots()
    attention_bars(ax, "update 5", world, stories, case, answers, weights)
    n = int(stories.lengths[case])
    assert [bar.get_height() for bar in ax.patches] == weights[case, :n].tolist()
    words = [label.get_text() for label in ax.get_xticklabels()]
    assert " ".join(words) == said(world, stories.passages[case])
    right = said(world, stories.answers[case][None])
    assert [words[text.xy[0]] for text in ax.texts] == [right] * words.count(right)
    question, told = said(world, stories.questions[case]), said(world, answers[case][None])
    assert ax.get_title() == f"update 5: {question} → {right}; it says {told}"
    plt.close("all")
