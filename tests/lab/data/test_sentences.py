"""Sentences and their neighbours, and the readers of texts and tasks: on small files written here,
in the original forms, whole and broken."""

import re
import zipfile

import numpy as np
import pytest

from layernorm.lab.data import sentence_tasks, sentences
from layernorm.lab.data.sentences import CorpusError, Document, triples, words


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Folders of this test alone, and no reader that remembers what it read."""
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    monkeypatch.setattr(sentences, "nltk_folders", lambda: [tmp_path / "nltk"])
    yield
    for reader in (sentences.novels, *sentence_tasks.TASKS.values()):
        reader.cache_clear()


def put(folder, name, text, encoding="utf-8"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


def document(*lengths):
    return Document("book", tuple(("word",) * length for length in lengths))


def test_triples_stay_inside_their_document_and_leave_out_what_is_too_long_or_empty():
    first, second = document(3, 3, 3, 3), document(2, 2, 2)
    assert triples([first, second], 3) == [(0, 1), (0, 2), (1, 1)]
    assert triples([document(3, 3), document(3, 3)], 3) == []
    assert triples([document(1, 1, 4, 1, 1, 1)], 3) == [(0, 4)]
    assert triples([document(1, 1, 1, 0, 1, 1)], 3) == [(0, 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He came. She left.", ["He came.", "She left."]),
        ("Mr. Brown met Dr. Hood. They spoke.", ["Mr. Brown met Dr. Hood.", "They spoke."]),
        ('"Stop!" he cried. "Why?"', ['"Stop!" he cried.', '"Why?"']),
        ('She said "No." Then she left.', ['She said "No."', "Then she left."]),
        ("It cost 3.5 pounds. J. Smith paid.", ["It cost 3.5 pounds.", "J. Smith paid."]),
        ("no end", ["no end"]),
        ("", []),
    ],
)  # fmt: skip
def test_sentences_of_a_paragraph(text, expected):
    assert sentences.sentences(text) == expected


def test_words_that_are_cut_already_stay_as_they_are():
    cut = "you 're told it 's not ca n't , mr. é 1,200 !"
    assert words(" ".join(words(cut))) == words(cut)
    assert words("can't, you're, O'Brien's") == ("ca", "n't", ",", "you", "'re", ",", "o", "'",
                                                "brien", "'s")  # fmt: skip


def test_manuals_are_prose_in_order_each_paragraph_once():
    pages = sentences.manuals()
    assert {page.source for page in pages} == {"python", "libraries"}
    assert pages[0].source == "python"
    assert len(triples(pages, 29)) > 1000
    said = [" ".join(sentence) for page in pages for sentence in page.sentences]
    assert not [line for line in said if ">>>" in line or "::" in line]
    longest = max(pages, key=lambda page: len(page.sentences))
    assert len(set(longest.sentences)) > 0.95 * len(longest.sentences)
    letters = sum(c.isalpha() or c == " " for line in said for c in line)
    assert letters > 0.8 * sum(map(len, said))


def test_manuals_do_not_depend_on_what_is_imported(monkeypatch):
    """`scipy.special` changes this docstring."""
    before = sentences.manuals.__wrapped__()
    monkeypatch.setattr(np.sinc, "__doc__", "These words are not those of NumPy.")
    assert sentences.manuals.__wrapped__() == before


def test_prose_is_told_from_code_tables_and_headings():
    text = """
Heading
*******

First of all a sentence.  And its neighbour
goes on in another line.

   >>> print("code")

* An item of a list is prose, too.

a_rule ::= "x" ["y"]

First of all a sentence.  And its neighbour
goes on in another line.
"""
    assert [" ".join(s) for s in sentences._prose(text, set())] == [
        "first of all a sentence .",
        "and its neighbour goes on in another line .",
        "an item of a list is prose , too .",
    ]


def novel(chapters=2):
    chapter = "CHAPTER I\n\n\nOne was here.  Two came--late; three\nwent.\n\nFour _stayed_.\n\n"
    return "[A Novel by Nobody 1900]\n\n" + chapters * chapter


def put_novels(folder):
    for name in sentences.NOVELS:
        put(folder / "corpora" / "gutenberg", f"{name}.txt", novel())


def test_novels_are_read_by_chapter(tmp_path):
    put_novels(tmp_path / "nltk")
    found = sentences.novels()
    assert len(found) == 2 * len(sentences.NOVELS)
    expected = ["one was here .", "two came - - late ;", "three went .", "four stayed ."]
    assert [" ".join(s) for s in found[0].sentences] == expected
    assert len(triples(found, 29)) == 2 * len(found)


def test_novels_in_nltks_zip_are_the_same(tmp_path):
    put_novels(tmp_path / "nltk")
    unpacked = sentences.sha256(sentences.novels())
    sentences.novels.cache_clear()
    folder = tmp_path / "nltk" / "corpora"
    with zipfile.ZipFile(folder / "gutenberg.zip", "w") as packed:
        for name in sentences.NOVELS:
            packed.writestr(f"gutenberg/{name}.txt", novel().replace("\n", "\r\n"))
            (folder / "gutenberg" / f"{name}.txt").unlink()
    assert sentences.sha256(sentences.novels()) == unpacked


def test_the_hash_sees_words_borders_and_order():
    kinds = [
        document(2, 2),
        document(4),
        document(2, 3),
        Document("other", document(2, 2).sentences),
    ]
    hashes = {sentences.sha256([kind]) for kind in kinds}
    assert len(hashes) == 4
    assert sentences.sha256(kinds) != sentences.sha256(kinds[::-1])


def refused(reader, *parts):
    """The reader refuses, and its message holds all parts."""
    with pytest.raises((CorpusError, FileNotFoundError)) as error:
        reader()
    for part in parts:
        assert part in str(error.value)


def test_missing_texts_say_how_to_get_them(tmp_path, monkeypatch):
    refused(sentences.novels, "gutenberg/austen-emma.txt", "nltk.downloader gutenberg", "NLTK_DATA")
    refused(sentence_tasks.mr, "rt-polarity.pos", "nltk.downloader sentence_polarity")
    refused(sentence_tasks.subj, "plot.tok.gt9.5000", "nltk.downloader subjectivity")
    refused(sentence_tasks.reviews, "nltk.downloader product_reviews_1")
    where = str(tmp_path / "custrev")
    refused(sentence_tasks.cr, "custrev.pos and custrev.neg", where, "sent-conv-torch")
    refused(sentence_tasks.mpqa, "mpqa.pos and mpqa.neg", "LAYERNORM_DATA")
    refused(sentence_tasks.sick, "SICK.txt", "zenodo", "LAYERNORM_DATA")
    monkeypatch.delenv("LAYERNORM_DATA")
    refused(sentence_tasks.cr, "LAYERNORM_DATA is not set")


def test_broken_texts_are_refused_with_file_and_line(tmp_path):
    put_novels(tmp_path / "nltk")
    folder = tmp_path / "nltk" / "corpora" / "gutenberg"
    file = put(folder, "austen-emma.txt", novel() + "\x00")
    line = novel().count("\n") + 1
    refused(sentences.novels, f"{file}:{line}: byte 0x00 is not text")
    file = put(folder, "austen-emma.txt", "No chapters.")
    refused(sentences.novels, f"{file}:1: expected a novel with chapters")
    (folder / "austen-emma.txt").unlink()
    put(folder.parent, "gutenberg.zip", "no zip")
    refused(sentences.novels, "gutenberg.zip/austen-emma.txt:0: cannot be read")


MR = {"rt-polarity.pos": 5331, "rt-polarity.neg": 5331}


def test_two_classes_in_the_originals_order(tmp_path):
    """numpy's legacy generator with seed 1234, which decides the folds; either encoding."""
    folder = tmp_path / "nltk" / "corpora" / "sentence_polarity"
    for name, encoding in zip(MR, ("utf-8", "latin-1"), strict=True):
        put(folder, name, "".join(f"{name[-3:]} café {i}\n" for i in range(5331)), encoding)
    task = sentence_tasks.mr()
    order = np.arange(10662)
    np.random.RandomState(1234).shuffle(order)
    assert task.labels.tolist() == (order < 5331).astype(int).tolist()
    for place in (0, 17, 10661):
        kind = "pos" if order[place] < 5331 else "neg"
        assert task.sentences[place] == (kind, "café", str(order[place] % 5331))


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    folder = tmp_path / "custrev"
    put(folder, "custrev.pos", "good\n" * 2407)
    file = put(folder, "custrev.neg", "bad\n" * 1300)
    refused(
        sentence_tasks.cr, f"{file}:1300: expected 1368 sentences, one a line, the file has 1300"
    )
    put(folder, "custrev.neg", "bad\n" * 1366 + "\nbad\n")
    assert len(sentence_tasks.cr().labels) == 2407 + 1367


def test_phrases_of_mpqa(tmp_path):
    put(tmp_path / "mpqa", "mpqa.pos", "complained\n" * 3312)
    put(tmp_path / "mpqa", "mpqa.neg", "failing to support\n" * 7294)
    task = sentence_tasks.mpqa()
    assert task.labels.sum() == 3312
    assert {s for s, y in zip(task.sentences, task.labels, strict=True) if y} == {("complained",)}


REVIEW = """*****
* annotated ## here
[t]a good phone
##i use it .
phone[+3], work[+2]##it works .
size[+1][u],sound[-2]##small but thin .
run[-3]#it stops .
"""


def test_reviews_give_the_sentences_whose_opinions_agree(tmp_path):
    folder = tmp_path / "nltk" / "corpora" / "product_reviews_1"
    for name in sentence_tasks.REVIEWS:
        put(folder, name, REVIEW.replace("annotated ## here", "annotated"))
    task = sentence_tasks.reviews()
    told = {(" ".join(s), int(y)) for s, y in zip(task.sentences, task.labels, strict=True)}
    assert told == {("it works .", 1), ("it stops .", 0)}
    assert len(task.labels) == 2 * len(sentence_tasks.REVIEWS)
    file = put(folder, sentence_tasks.REVIEWS[1], REVIEW + "no mark\n")
    refused(sentence_tasks.reviews, f"{file}:8: expected opinions##sentence, got 'no mark'")


HEAD = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
ROWS = ["A dog runs\tNo dog runs\t3.6", "A man eats\tA man is eating\t4.9", "Rain\tSun\t1"]


def three_files(folder):
    for name, row in zip(sentence_tasks.THREE.values(), ROWS, strict=True):
        put(folder, name, f"{HEAD}\n7\t{row}\tNEUTRAL\n")


def one_file(folder):
    head = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set"
    lines = [head]
    for row, part in zip(ROWS, sentence_tasks.SETS, strict=True):
        a, b, score = row.split("\t")
        lines.append(f"7\t{a}\t{b}\tNEUTRAL\t{score}\t{part}")
    return put(folder, "SICK.txt", "\r\n".join(lines) + "\r\n")


@pytest.mark.parametrize("layout", [three_files, one_file])
def test_sick_in_both_layouts(layout, tmp_path):
    layout(tmp_path / "sick")
    task = sentence_tasks.sick()
    assert task.first == (("a", "dog", "runs"), ("a", "man", "eats"), ("rain",))
    assert task.second[2] == ("sun",)
    assert task.scores.tolist() == [3.6, 4.9, 1.0]
    assert [task.rows(part).tolist() for part in sentence_tasks.THREE] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("relatedness_score", "score", r":1: expected columns .*, found no relatedness_score"),
        ("3.6", "6.3", r":2: relatedness must be from 1 to 5, got '6.3'"),
        ("3.6", "high", r":2: relatedness must be from 1 to 5, got 'high'"),
        ("\tSun", "", r":4: expected 6 columns between tabs, got 5"),
        ("TRIAL", "DEV", r":3: SemEval_set is 'DEV'"),
        ("TEST", "TRAIN", r": no pairs of part test"),
        ("Sun", "S\x01n", r":4: byte 0x01 is not text"),
    ],
)
def test_broken_pairs_are_refused_with_file_and_line(old, new, message, tmp_path):
    file = one_file(tmp_path / "sick")
    file.write_bytes(file.read_bytes().replace(old.encode(), new.encode()))
    with pytest.raises(CorpusError, match=re.escape(str(tmp_path / "sick")) + ".*" + message):
        sentence_tasks.sick()
    file.write_bytes(b"\xff" + file.read_bytes())
    with pytest.raises(CorpusError, match=r"SICK\.txt:1: byte 0xff is no utf-8"):
        sentence_tasks.sick()
