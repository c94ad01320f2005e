"""Questions about news: files are read to the last word, and a broken one is refused with its name
and line. The texts are made up."""

import os
import re

import pytest
import torch

from layernorm.lab.data.cloze import FIRST, PLACEHOLDER
from layernorm.lab.data.questions import (
    Question,
    QuestionError,
    Vocabulary,
    encoded,
    read,
    shortened,
)

GOOD = """http://news.example/1

( @entity2 ) @entity0 sold the café to @entity1 . nobody asked why

@placeholder bought the café

@entity1

@entity0:Ann Lee
@entity1:Bo: the second
@entity2:CNN
"""


def written(tmp_path, text):
    path = tmp_path / "f00.question"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_question_is_read_to_the_last_word(tmp_path):
    got = read(written(tmp_path, GOOD))
    text = "( @entity2 ) @entity0 sold the café to @entity1 . nobody asked why"
    assert got.text == tuple(text.split())
    assert got.question == ("@placeholder", "bought", "the", "café")
    assert got.answer == "@entity1"
    assert got.names == {"@entity0": "Ann Lee", "@entity1": "Bo: the second", "@entity2": "CNN"}
    assert got.file.endswith("f00.question")
    assert not got.lost


@pytest.mark.parametrize("place", ["@entity1\n\n@entity0", "sold", "@entity0:Ann Lee"])
def test_a_marker_of_thousands_of_digits_is_refused(tmp_path, place):
    """Python refuses to read such a number, with another kind of error."""
    huge = f"@entity{'7' * 5000}"
    text = GOOD.replace(place, f"{huge}\n\n@entity0" if "\n" in place else place + " " + huge)
    with pytest.raises(QuestionError, match=r"f00\.question:\d+: "):
        read(written(tmp_path, text.replace(f"Ann Lee {huge}", f"Ann Lee\n{huge}:Bo")))


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "f00.question")
    with pytest.raises(QuestionError, match="expected a file, got a folder, pipe or device"):
        read(tmp_path / "f00.question")


def test_line_ends_of_another_system_change_nothing(tmp_path):
    unix = read(written(tmp_path, GOOD))
    assert read(written(tmp_path, GOOD.replace("\n", "\r\n"))) == unix
    assert read(written(tmp_path, GOOD.rstrip("\n"))) == unix


def answered(line):
    return GOOD.replace("@entity1\n\n", f"{line}\n")


LATIN = GOOD.encode().replace("é".encode(), b"\xe9")
NO_MARKER = "7: the answer must be one marker like @entity3, got "
BROKEN = {
    "empty": ("", "1: the address is missing: the file ends here"),
    "no answer": (answered(""), "8: the answer is missing: here the names"),
    "cut off": (GOOD[: GOOD.index("@entity1\n\n")], "6: the answer is missing: the file ends here"),
    "no names": (GOOD[: GOOD.index("@entity0:")], "8: the names of the markers is missing"),
    "not a marker": (answered("Bo\n"), f"{NO_MARKER}'Bo'"),
    "two answers": (answered("@entity1 @entity2\n"), f"{NO_MARKER}'@entity1 @entity2'"),
    "two lines": (answered("@entity1\n@entity2\n"), "8: expected one line"),
    "elsewhere": (answered("@entity9\n"), "7: the answer @entity9 is not in the text"),
    "no gap": (GOOD.replace("@placeholder", "who"), "5: the question has no @placeholder"),
    "no name": (GOOD.replace("@entity2:CNN", "@entity2"), "11: expected a marker and its name"),
    "named twice": (
        GOOD.replace("@entity2:CNN", "@entity0:CNN"),
        "11: @entity0 has a name already, 'Ann Lee'",
    ),
    "too much": (GOOD + "\nmore\n", "13: expected 5 parts, and here is another"),
    "Latin-1": (LATIN, "3: byte 35 of the line, 0xe9, is no UTF-8; convert the file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_with_file_and_line(tmp_path, case):
    text, message = BROKEN[case]
    path = written(tmp_path, text)
    with pytest.raises(QuestionError, match="^" + re.escape(f"{path}:{message}")):
        read(path)


def question(text, asked, answer="@entity1"):
    return Question(tuple(text.split()), tuple(asked.split()), answer)


def test_the_sentences_that_share_most_words_are_kept_in_their_order():
    told = "a b . c d . @entity1 c a ! b a c ? c d"
    asked = question(told, "@placeholder c a .")
    assert " ".join(shortened(asked, 2).text) == "@entity1 c a ! b a c ?"
    # of equals the earlier one: "a b ." and "c d ." share a word each
    assert " ".join(shortened(asked, 3).text) == "a b . @entity1 c a ! b a c ?"


def test_a_word_counts_once_and_punctuation_not_at_all():
    told = "a a a . , , , . @entity1 a b , ."
    asked = question(told, "@placeholder a , b , ,")
    assert " ".join(shortened(asked, 1).text) == "@entity1 a b , ."


def test_an_answer_can_be_cut_away_and_is_then_lost():
    told = question("@entity1 slept . a b . a c .", "@placeholder a")
    assert not told.lost
    assert shortened(told, 2).lost
    assert not shortened(told, 3).lost


def test_short_texts_stay_as_they_are():
    told = question("@entity1 a b . c", "@placeholder a")
    assert shortened(told, 4).text == told.text


def test_the_vocabulary_takes_all_markers_and_the_most_frequent_words():
    read_in = [question("@entity4 b a b . a b", "@placeholder c a", "@entity4")]
    words = Vocabulary.of(read_in, FIRST + 5 + 3)
    assert (words.entities, words.words) == (5, ("a", "b", "."))  # a and b thrice: by name
    assert len(words) == FIRST + 5 + 3
    with pytest.raises(ValueError, match=r"size must be at least 9, for 5 markers, got 8"):
        Vocabulary.of(read_in, 8)


def test_questions_become_numbers_padded_at_the_end():
    words = Vocabulary(2, ("a", "b"))
    got = encoded([question("@entity1 a x", "@placeholder b"), question("@entity1", "a")], words)
    first = FIRST + 2
    assert got.passages.tolist() == [[FIRST + 1, first, Vocabulary.UNKNOWN], [FIRST + 1, 0, 0]]
    assert got.lengths.tolist() == [3, 1]
    assert got.questions.tolist() == [[PLACEHOLDER, first + 1], [first, 0]]
    assert got.question_lengths.tolist() == [2, 1]
    assert torch.equal(got.answers, torch.tensor([FIRST + 1, FIRST + 1]))


def test_a_marker_that_the_vocabulary_lacks_is_refused():
    with pytest.raises(QuestionError, match="@entity1 is beyond the vocabulary's 1 markers; count"):
        encoded([question("@entity1 a", "@placeholder a")], Vocabulary(1, ("a",)))
    with pytest.raises(ValueError, match="at least one question, got none"):
        encoded([], Vocabulary(1, ()))
