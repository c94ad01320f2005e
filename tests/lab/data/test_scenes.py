"""Scenes and captions: every caption is true, by a checker that reads the words; no caption is in
two parts; the ceiling is the one that is worked out by hand."""

import re
from collections import Counter
from random import Random

import pytest
import torch

from layernorm.lab.data import digits, scenes
from layernorm.lab.data.scenes import CAPTIONS, EMPTY, LIKELY, PARTS, Caption, Scenes, facts, worded

LABELS = torch.arange(10).repeat(3)
PLURAL = {plural: d for d, plural in enumerate(scenes.PLURALS)}
NUMBER = {name: d for d, name in enumerate(scenes.NUMBERS)} | {str(d): d for d in range(10)}
DIGIT = r"(?:(?:an?|the|somebody's)?(?: ?[a-z]+)? ?)?\b({})\b".format("|".join(NUMBER))
CORNER = r"(top|upper|bottom|lower) (left|right)(?:-hand)?"
WHERE = rf"(?:in the {CORNER}(?: corner)?|at the {CORNER}|{CORNER})"


def place(words):
    """The place that `top left`, `down on the right` or `southwest` names."""
    if words.startswith(("north", "south")):
        return 2 * words.startswith("south") + words.endswith("east")
    low = any(word in words for word in ("bottom", "lower", "down"))
    return 2 * low + ("right" in words)


SPOT = r"(.*(?:left|right|left-hand|right-hand|west|east)(?: corner)?)"


def holds(fact, scene):
    """Tell whether a fact is true of a scene, written anew from what the words mean."""
    kind, *of = fact
    top, bottom = list(scene[:2]), list(scene[2:])
    columns = [[scene[0], scene[2]], [scene[1], scene[3]]]
    there = [d for d in scene if d != EMPTY]
    total = {"top": top, "bottom": bottom, "left": columns[0], "right": columns[1]}
    total = {half: sum(d for d in line if d != EMPTY) for half, line in total.items()}
    match kind:
        case "at":
            return scene[of[0]] == of[1]
        case "empty":
            return scene[of[0]] == EMPTY
        case "beside":
            return of in (top, bottom)
        case "above":
            return of in columns
        case "before":
            return any(there[i] == of[0] and of[1] in there[i + 1 :] for i in range(len(there)))
        case "count":
            return Counter(there)[of[0]] == of[1]
        case "none":
            return of[0] not in there
        case "digits":
            return len(there) == of[0]
        case "parity":
            return sum(d % 2 == (of[0] == "odd") for d in there) == of[1]
        case "largest":
            return sorted(there)[-1] == of[0]
        case "smallest":
            return sorted(there)[0] == of[0]
        case "greater":
            return min(scene[of[0]], scene[of[1]]) != EMPTY and scene[of[0]] > scene[of[1]]
        case "same":
            return scene[of[0]] == scene[of[1]] != EMPTY
        case "heavier":
            opposite = {"top": "bottom", "bottom": "top", "left": "right", "right": "left"}
            return total[of[0]] > total[opposite[of[0]]]


def read(kind, words):
    """The fact that words say, read by a pattern of its own for each way to say it."""

    def first(*patterns):
        for pattern in patterns:
            if found := re.fullmatch(pattern, words):
                return found.groups()
        raise AssertionError(f"{kind}: {words!r} is read by no pattern")

    relation = {
        "beside": ("(?:to the |directly )?left of", "(?:to the |directly )?right of"),
        "above": ("(?:above|over|on top of)", "(?:below|under|beneath|underneath)"),
        "before": ("(?:comes before|precedes)", "(?:comes after|follows)"),
    }
    if kind in relation:
        forward, backward = relation[kind]
        if found := re.fullmatch(rf"{DIGIT} {forward} {DIGIT}", words):
            return kind, *(NUMBER[name] for name in found.groups())
        b, a = (NUMBER[name] for name in first(rf"{DIGIT} {backward} {DIGIT}"))
        return kind, a, b
    if kind == "at":
        name, where = first(rf"{DIGIT} {SPOT}")
        return kind, place(where), NUMBER[name]
    if kind == "empty":
        return kind, place(first(rf"{SPOT} is (?:empty|blank|vacant|free)", rf"nothing {SPOT}")[0])
    if kind == "none":
        name = words.split()[-1]
        assert words.startswith(("no ", "not a single "))
        return kind, PLURAL[name] if name in PLURAL else NUMBER[name]
    if kind == "count":
        sizes = {"exactly one": 1, "a single": 1, "just one": 1, "a pair of": 2, "a couple of": 2,
                 "a trio of": 3, "a triple of": 3, "a lot of": 4}  # fmt: skip
        how, name = words.rsplit(" ", 1)
        n = sizes.get(how) or NUMBER[how.removesuffix(" times")]
        return kind, PLURAL[name] if name in PLURAL else NUMBER[name], n
    if kind == "digits":
        return kind, NUMBER[re.search(rf"\b({'|'.join(NUMBER)})\b", words)[1]]
    if kind == "parity":
        count, of = first(r"(\w+) (odd|even) (?:digit|number|figure)s?")
        return kind, of, 0 if count == "no" else NUMBER[count]
    if kind in ("largest", "smallest"):
        most, than, ends = {
            "largest": ("largest", "larger|greater|bigger", "maximum|highest"),
            "smallest": ("smallest", "smaller|less|lower", "minimum|lowest"),
        }[kind]
        return kind, NUMBER[first(
            rf"the {most} digit is {DIGIT}", rf"no digit is (?:{than}) than (\w+)",
            rf"(\w+) is the (?:{ends})",
        )[0]]  # fmt: skip
    if kind == "greater":
        if found := re.fullmatch(rf"{SPOT} is (?:smaller|less|lower) than {SPOT}", words):
            return kind, place(found[2]), place(found[1])
        one, other = first(
            rf"{SPOT} is (?:larger|greater|bigger|higher) than {SPOT}",
            rf"{SPOT} (?:exceeds|beats|tops) {SPOT}",
        )
        return kind, place(one), place(other)
    if kind == "same":
        one, other = first(rf"{SPOT} equals {SPOT}", rf"{SPOT} and {SPOT} (?:agree|match)")
        return kind, place(one), place(other)
    halves = "(top|bottom|left|right)"
    if found := re.fullmatch(rf"the {halves} (?:row|column) sums to less", words):
        return kind, scenes.ACROSS[found[1]]
    more, *_ = first(
        rf"the {halves} (?:row|column) sums to more",
        rf"the {halves} (?:row|column) outweighs the {halves}",
    )
    return kind, more


ALL = scenes.draw(LABELS, 400, "train", seed=1)


def test_the_facts_of_a_scene_are_those_that_hold():
    every = {fact for scene in ALL.digits for fact in facts(scene)}
    assert {fact[0] for fact in every} == set(LIKELY)
    for scene in ALL.digits[:60]:
        assert facts(scene) == {fact for fact in every if holds(fact, scene)}


def test_the_words_of_a_fact_say_that_fact():
    """Every way to say it, often enough that each is met."""
    random = Random(3)
    pick = scenes._picker(random)
    by_kind = {fact[0]: fact for scene in ALL.digits for fact in facts(scene)}
    for kind in LIKELY:
        some = [f for scene in ALL.digits[:80] for f in sorted(facts(scene), key=str)]
        for fact in [by_kind[kind], *(f for f in some if f[0] == kind)][:150]:
            sentence, words = scenes._worded(fact, pick)
            assert read(kind, words) == fact
            assert sentence == (kind in scenes._SENTENCES)


def test_captions_are_true_and_say_one_to_three_different_things():
    assert len(ALL.captions) == CAPTIONS * len(ALL) == 2000
    for i, caption in enumerate(ALL.captions):
        assert 1 <= len(set(caption.facts)) == len(caption.facts) <= 3
        assert all(holds(fact, ALL.digits[i // CAPTIONS]) for fact in caption.facts)
    assert {len(caption.facts) for caption in ALL.captions} == {1, 2, 3}


def test_a_caption_says_its_facts_and_nothing_else():
    random, fact = Random(0), ("largest", 8)
    texts = {worded([fact], random) for _ in range(300)}
    endings = "|".join(scenes.ENDINGS)
    assert any(text.endswith(scenes.ENDINGS) for text in texts)
    for text in texts:
        assert read("largest", re.sub(rf" (?:{endings})$", "", text)) == fact
    for text in (worded([("digits", 3), ("largest", 8)], random) for _ in range(100)):
        assert text.startswith(scenes.OPENERS)
        assert any(f" {link} " in text for link in scenes.LINKS)


def test_no_caption_is_in_two_parts_and_every_image_is_of_its_part():
    drawn = {part: scenes.draw(LABELS, 300, part, seed=5) for part in PARTS}
    texts = {part: {c.text for c in one.captions} for part, one in drawn.items()}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]
    for one in drawn.values():
        for images, scene in zip(one.images.tolist(), one.digits, strict=True):
            assert [EMPTY if i == EMPTY else int(LABELS[i]) for i in images] == list(scene)
            assert sum(i != EMPTY for i in images) >= 2


def test_the_language_is_rich():
    """A few hundred words; paraphrases: a fact has many texts, and most captions are unique."""
    words = {word for caption in ALL.captions for word in caption.text.split()}
    assert len(words) > 200
    random = Random(0)
    assert len({worded([("at", 0, 3)], random) for _ in range(200)}) > 150
    assert len({caption.text for caption in ALL.captions}) > 0.9 * len(ALL.captions)


def test_scenes_are_drawn_by_the_seed_alone():
    one, two = (scenes.draw(LABELS, 5, "test", seed=4) for _ in range(2))
    assert torch.equal(one.images, two.images)
    assert one.captions == two.captions
    assert one.captions != scenes.draw(LABELS, 5, "test", seed=6).captions
    assert scenes.draw(digits().test.y, 3, "test", 0).captions[0].text == PINNED


PINNED = "look at just one zero furthermore the smallest digit is a 0"


def test_the_ceiling_by_hand():
    """Caption 0 holds for both scenes, caption 1 for its own alone."""
    told = [Caption("a", (("digits", 2),)), Caption("b", (("at", 0, 3), ("digits", 2)))]
    two = Scenes(torch.zeros(2, 4, dtype=torch.int64), [(3, 4, -1, -1), (5, 4, -1, -1)], told)
    holds_for = scenes.holds_for(two)
    assert holds_for.tolist() == [[True, True], [True, False]]
    assert scenes.ceiling(holds_for, 1) == 75.0
    assert scenes.ceiling(holds_for, 2) == 100.0


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="part must be one of train, validation, test, got 'dev'"):
        scenes.draw(LABELS, 1, "dev", 0)
    with pytest.raises(ValueError, match="labels must be those of at least one image"):
        scenes.draw(LABELS[:0], 1, "train", 0)
