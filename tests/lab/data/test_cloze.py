"""Cloze stories: what is drawn is what the definition says, and ceiling and trivial strategies are
those that one works out by hand."""

import math
import re

import pytest
import torch

from layernorm.lab.data import cloze_baselines as baselines
from layernorm.lab.data.cloze import (
    FIRST,
    PAD,
    PLACEHOLDER,
    STOP,
    THEY,
    Stories,
    World,
    draw,
    permuted,
    said,
)

WORLDS = {
    "book": World(),
    "long": World(entities=20, sentences=8, verbs=8, objects=8, filled=3),
    "smallest": World(entities=2, verbs=1, objects=1, fillers=1, sentences=1, filled=0),
    "always they": World(coreference=0.99),
    "plain": World(coreference=0.0, filled=0),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=WORLDS, name="world")
def _world(request):
    return WORLDS[request.param]


def by_words(world, stories):
    """Passage, question and answer of each story as text."""
    parts = zip(stories.passages, stories.questions, stories.answers[:, None], strict=True)
    return [tuple(said(world, words) for words in story) for story in parts]


def test_every_sentence_says_who_did_what_and_no_two_say_the_same(world):
    words = world.words()
    verbs = set(words[FIRST + world.entities :][: world.verbs])
    objects = set(words[FIRST + world.entities + world.verbs :][: world.objects])
    fillers = set(words[-world.fillers :])
    for passage, question, _ in by_words(world, draw(world, 50, generator())):
        sentences = [sentence.split() for sentence in passage.split(" .")[:-1]]
        assert len(sentences) == world.sentences
        said_of = set()
        for sentence in sentences:
            assert sum(word in fillers for word in sentence) <= world.filled
            subject, verb, thing = (word for word in sentence if word not in fillers)
            assert subject.startswith(("@entity", "they"))
            assert verb in verbs
            assert thing in objects
            said_of.add((verb, thing))
        assert len(said_of) == world.sentences
        gap, *asked = (word for word in question.split() if word not in fillers)
        assert gap == "@placeholder"
        assert tuple(asked) in said_of


def test_the_answer_is_whom_the_sentence_is_about():
    """Read off the text with regular expressions, apart from the package's own reader."""
    world, found = World(), 0
    content = world.words()[FIRST + world.entities : -world.fillers]
    for passage, question, answer in by_words(world, draw(world, 300, generator())):
        verb, thing = (word for word in question.split() if word in content)
        about = None
        for sentence in passage.split(" ."):
            if match := re.search(r"@entity\d+", sentence):
                about = match[0]
            if verb in sentence.split() and thing in sentence.split():
                break
        if about is not None:
            assert about == answer
            found += 1
    assert 0.9 < found / 300 < 1


def test_padding_stands_at_the_end_alone_and_lengths_say_where(world):
    stories = draw(world, 100, generator())
    for words, lengths in (
        (stories.passages, stories.lengths),
        (stories.questions, stories.question_lengths),
    ):
        assert torch.equal(words != PAD, torch.arange(words.shape[1]) < lengths[:, None])
        assert int(lengths.max()) == words.shape[1]
    assert world.sentences * 4 <= int(stories.lengths.min())
    assert int(stories.lengths.max()) <= world.longest
    last = stories.passages.gather(1, stories.lengths[:, None] - 1)
    assert (last == STOP).all()
    assert (stories.questions == PLACEHOLDER).sum(1).eq(1).all()


def test_fillers_stand_before_between_and_after_the_words_but_not_after_the_stop():
    world = World(sentences=1, filled=1, coreference=0.0)
    passages = draw(world, 400, generator()).passages
    filler = passages >= world.vocabulary - world.fillers
    assert filler.any(0).tolist() == [True, True, True, True, False]
    questions = draw(world, 400, generator()).questions
    assert (questions >= world.vocabulary - world.fillers).any(0).all()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_subjects_are_they_as_often_as_the_world_says(share):
    world = World(coreference=share)
    stories = draw(world, 3000, generator())
    they = (stories.passages == THEY).sum().item() / (3000 * world.sentences)
    assert they == pytest.approx(share, abs=0.02)


def test_markers_mean_nothing_every_one_answers_as_often():
    answers = draw(World(), 20000, generator()).answers
    counts = torch.bincount(answers - FIRST, minlength=10)
    assert len(counts) == 10
    assert (counts / 20000 - 0.1).abs().max() < 0.01


def test_the_same_generator_gives_the_same_stories():
    one, same, other = (draw(World(), 20, generator(seed)) for seed in (1, 1, 2))
    assert one.sha256() == same.sha256()
    assert one.sha256() != other.sha256()


def test_a_hash_sees_every_part():
    stories = draw(World(), 5, generator())
    for name, part in vars(stories).items():
        changed = part.clone()
        changed.view(-1)[0] += 1
        assert Stories(**{**vars(stories), name: changed}).sha256() != stories.sha256()


def test_permuting_renames_markers_alone_and_each_story_in_its_own_way():
    world = World()
    stories = draw(world, 200, generator())
    renamed = permuted(stories, world.entities, generator(1))
    became = {f"@entity{i}": set() for i in range(world.entities)}
    for before, after in zip(by_words(world, stories), by_words(world, renamed), strict=True):
        old, new = (" | ".join(texts).split() for texts in (before, after))
        names = dict(zip(old, new, strict=True))
        assert all(names[word] == now for word, now in zip(old, new, strict=True))
        assert len(set(names.values())) == len(names)
        assert all(was == now for was, now in names.items() if not was.startswith("@entity"))
        for marker in became.keys() & names.keys():
            became[marker].add(names[marker])
    assert all(len(new) == world.entities for new in became.values())
    assert torch.equal(stories.lengths, renamed.lengths)


# Two verbs, two objects; worked out by hand. Words: FIRST.. markers 0-3, then verbs, objects.
SMALL = World(entities=4, verbs=2, objects=2, fillers=1, sentences=3, filled=1)
BY_HAND = {  # passage, question: what the strategies answer, and the chance of the best reader
    "@entity1 sold bread . they sold boats . @entity2 built bread .": {
        "@placeholder sold bread": ("@entity1", "@entity1", "@entity1", 1),
        "@placeholder sold boats": ("@entity1", "@entity1", "@entity2", 1),
        "@placeholder built bread": ("@entity1", "@entity2", "@entity1", 1),
    },
    "they sold bread . @entity3 sold boats . @entity3 built bread .": {
        "@placeholder sold bread": ("@entity3", "@entity3", "@entity3", 1 / 3),
        "@placeholder sold boats": ("@entity3", "@entity3", "@entity3", 1),
    },
    "@entity0 today sold bread . @entity3 sold boats . @entity3 built bread .": {
        "@placeholder sold bread": ("@entity3", "@entity3", "@entity3", 1),
        "@placeholder sold boats": ("@entity3", "@entity3", "@entity3", 1),
    },
    "they sold bread . they sold boats . they built bread .": {
        "@placeholder sold boats": (None, None, None, 1 / 4)
    },
}
CASES = [(p, q, *rest) for p, questions in BY_HAND.items() for q, rest in questions.items()]


def numbered(world, text):
    names = world.words()
    return [names.index(word) for word in text.split()]


def story(world, passage, question, answer="@entity0"):
    p, q = (torch.tensor([numbered(world, text)]) for text in (passage, question))
    lengths = (torch.tensor([t.shape[1]]) for t in (p, q))
    return Stories(p, next(lengths), q, next(lengths), torch.tensor(numbered(world, answer)))


@pytest.mark.parametrize(("passage", "question", "most", "verb", "thing", "chance"), CASES)
def test_ceiling_and_trivial_strategies_by_hand(passage, question, most, verb, thing, chance):
    told = story(SMALL, passage, question)
    assert len(baselines.STRATEGIES) == 3
    for strategy, answer in (
        (baselines.most_frequent, most),
        (baselines.nearest_verb, verb),
        (baselines.nearest_object, thing),
    ):
        got = strategy(SMALL, numbered(SMALL, passage), numbered(SMALL, question))
        assert said(SMALL, torch.tensor([got])) == (answer or ""), strategy
    assert baselines.ceiling(SMALL, told) == chance


def test_accuracy_is_the_share_of_right_answers():
    told = [story(SMALL, p, q, a) for p, q, a in (
        ("@entity1 sold bread .", "@placeholder sold bread", "@entity1"),
        ("@entity2 sold bread .", "@placeholder sold bread", "@entity1"),
        ("@entity3 sold bread .", "@placeholder sold bread", "@entity3"),
        ("@entity0 sold bread .", "@placeholder sold bread", "@entity0"),
    )]  # fmt: skip
    parts = {name: torch.cat([getattr(s, name) for s in told]) for name in vars(told[0])}
    for strategy in baselines.STRATEGIES.values():
        assert baselines.accuracy(SMALL, Stories(**parts), strategy) == 0.75
    assert baselines.best_trivial(SMALL, Stories(**parts)) == 0.75


def test_the_ceiling_is_that_of_the_chances():
    """A sentence is lost if "they" leads from it to the beginning: c, c², ... by its place."""
    world = World(coreference=0.3, entities=20)
    lost = sum(0.3**place for place in range(1, world.sentences + 1)) / world.sentences
    got = baselines.ceiling(world, draw(world, 20000, generator()))
    room = 4 * math.sqrt(lost / 20000)  # four standard deviations
    assert 1 - lost * (1 - 1 / 20) - room < got < 1 - lost * (1 - 1 / 16) + room


def test_no_trivial_strategy_comes_near_the_ceiling():
    world = World()
    stories = draw(world, 4000, generator())
    best = baselines.best_trivial(world, stories)
    assert 1 / world.entities < best < baselines.ceiling(world, stories) - 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sentences": 0}, "sentences must be at least 1, a story has some; got 0"),
        ({"entities": 4}, "entities must be at least 5, a sentence can name somebody, and so one"),
        ({"fillers": 0}, "fillers must be at least 1"),
        ({"filled": -1}, "filled must be at least 0"),
        ({"verbs": 1, "objects": 3}, "verbs times objects must be at least the 4 sentences, none"),
        ({"coreference": 1.0}, "coreference must lie in [0, 1), got 1.0"),
    ],
)
def test_a_world_without_stories_is_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        World(**change)


def test_words_beyond_the_lists_are_numbered():
    world = World(verbs=100, objects=100, fillers=100)
    words = world.words()
    assert len(words) == len(set(words)) == world.vocabulary
    assert words[FIRST + world.entities + 99] == "verb99"
