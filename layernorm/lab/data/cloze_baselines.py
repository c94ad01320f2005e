"""Cloze stories answered without learning: the ceiling, and trivial strategies.

All of them read the words alone, never how a story was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from layernorm.lab.data.cloze import FIRST, PAD, PLACEHOLDER, STOP, THEY, Stories, World

Words = Sequence[int]
Strategy = Callable[[World, Words, Words], int]


def facts(world: World, passage: Words) -> list[tuple[int, int, int]]:
    """(subject, verb, object) of each sentence, "they" resolved; subject 0: cut away."""
    found, about, sentence = [], PAD, []
    for word in passage:
        if word == STOP:
            subject, verb, thing = sentence
            about = about if subject == THEY else subject
            found.append((about, verb, thing))
            sentence = []
        elif word < _first_filler(world):
            sentence.append(word)
    return found


def ceiling(world: World, stories: Stories) -> float:
    """The expected share of right answers of the best possible reader.

    It is right wherever the passage tells the answer. Where the name was cut away, everybody whom
    the passage does not name is as likely as everybody else.
    """
    total = 0.0
    for passage, question in _each(stories):
        told = facts(world, passage)
        subject = next(who for who, *what in told if what == asked(world, question))
        named = {word for word in passage if _is_entity(world, word)}
        total += 1 if subject else 1 / (world.entities - len(named))
    return total / len(stories)


def asked(world: World, question: Words) -> list[int]:
    """The verb and the object that a question asks about."""
    return [word for word in question if PLACEHOLDER < word < _first_filler(world)]


def most_frequent(world: World, passage: Words, question: Words) -> int:
    """The entity that the passage mentions most often; of equals the first one."""
    counts = Counter(word for word in passage if _is_entity(world, word))
    return max(counts, key=counts.__getitem__, default=PAD)


def nearest_verb(world: World, passage: Words, question: Words) -> int:
    """The entity nearest to a mention of the question's verb; of equals the first one."""
    return _nearest(world, passage, asked(world, question)[0])


def nearest_object(world: World, passage: Words, question: Words) -> int:
    """The entity nearest to a mention of the question's object; of equals the first one."""
    return _nearest(world, passage, asked(world, question)[1])


STRATEGIES: dict[str, Strategy] = {
    "most frequent entity": most_frequent,
    "entity nearest to the verb": nearest_verb,
    "entity nearest to the object": nearest_object,
}


def accuracy(world: World, stories: Stories, strategy: Strategy) -> float:
    """The share of stories that a strategy answers rightly."""
    answers = stories.answers.tolist()
    right = (
        strategy(world, passage, question) == answer
        for (passage, question), answer in zip(_each(stories), answers, strict=True)
    )
    return sum(right) / len(stories)


def best_trivial(world: World, stories: Stories) -> float:
    """The highest accuracy of the trivial strategies."""
    return max(accuracy(world, stories, strategy) for strategy in STRATEGIES.values())


def _each(stories: Stories) -> list[tuple[list[int], list[int]]]:
    """Passage and question of each story, without padding."""
    parts = ((stories.passages, stories.lengths), (stories.questions, stories.question_lengths))
    cut = (
        [words[:n] for words, n in zip(texts.tolist(), lengths.tolist(), strict=True)]
        for texts, lengths in parts
    )
    return list(zip(*cut, strict=True))


def _is_entity(world: World, word: int) -> bool:
    return FIRST <= word < FIRST + world.entities


def _first_filler(world: World) -> int:
    return world.vocabulary - world.fillers


def _nearest(world: World, passage: Words, word: int) -> int:
    places = [i for i, other in enumerate(passage) if other == word]
    entities = [i for i, other in enumerate(passage) if _is_entity(world, other)]
    pairs = [(abs(i - j), i) for i in entities for j in places]
    return passage[min(pairs)[1]] if pairs else PAD
