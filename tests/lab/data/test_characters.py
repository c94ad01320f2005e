"""Text as characters: the alphabet, the manual that no edition changes, the parts, baselines."""

import math
import zipfile

import pytest
import torch

from layernorm.lab.data import characters
from layernorm.lab.data.characters import ALPHABET, bigram, decode, encode, split, unigram


def test_all_printable_characters_survive_and_others_are_left_out():
    assert len(set(ALPHABET)) == len(ALPHABET) == 96
    assert decode(encode(ALPHABET)) == ALPHABET
    assert decode(encode("é\tA\r\n")) == "A\n"
    assert encode("").numel() == 0


def test_sentences_are_plain_and_come_once():
    topics = {
        "b": "A sentence of ordinary words\n   that goes on, and ends. Short one. x = 1.",
        "a": "A sentence of ordinary words that goes on, and ends. Another *marked* sentence, "
        "of ordinary length. There are 3 numbers in this one, so it is left out.",
    }
    assert list(characters.sentences(topics).values()) == [
        "A sentence of ordinary words that goes on, and ends.",
        "Another marked sentence, of ordinary length.",
    ]


def test_the_manual_has_only_sentences_that_its_checksums_name():
    known = {int(line, 16) for line in characters.CHECKSUMS.read_text().split()}
    lines = characters.manual().splitlines()
    assert len(known) == 874
    assert len(lines) > 700  # a later edition may have dropped some
    assert {characters.zlib.crc32(line.encode()) for line in lines} <= known
    assert all(set(line) <= set(ALPHABET) for line in lines)


def test_parts_share_no_block_and_hold_the_whole_text():
    parts = split("manual")
    assert sum(map(len, parts.values())) == len(encode(characters.manual()))
    assert all(0.05 < len(parts[p]) / len(parts["train"]) < 0.2 for p in characters.PARTS)
    line = max(decode(parts["test"]).splitlines(), key=len)
    assert line not in decode(parts["train"])
    assert line in characters.manual()
    counted = torch.cat(list(parts.values())).bincount(minlength=96)
    assert torch.equal(counted, encode(characters.manual()).bincount(minlength=96))


def test_trivial_models_have_the_cross_entropy_of_their_counts():
    text = encode("abababab")
    a, b = 5 / 104, 4.0 / 104 + 1 / 104
    assert unigram(text, text) == pytest.approx(-(math.log(a) + math.log(b)) / 2)
    after_a, after_b = 5 / 100, 4 / 99  # four times b after a, three times a after b; plus one
    expected = -(4 * math.log(after_a) + 3 * math.log(after_b)) / 7
    assert bigram(text, text) == pytest.approx(expected)
    parts = split("manual")
    assert (
        2.2 < bigram(parts["train"], parts["test"]) < unigram(parts["train"], parts["test"]) < 3.5
    )


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Folders of NLTK's data, and short novels packed as NLTK packs them."""
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    monkeypatch.setattr(characters.Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    for cached in (characters.novels, split, characters.sha256):
        cached.cache_clear()
    (tmp_path / "corpora").mkdir()
    yield tmp_path / "corpora"
    for cached in (characters.novels, split, characters.sha256):
        cached.cache_clear()


def test_novels_are_read_packed_or_unpacked(library):
    text = "[Emma]\r\n\r\n\r\nCHAPTER I\r\n\r\nShe was   handsome,\r\nand clever.\r\n"
    with zipfile.ZipFile(library / "gutenberg.zip", "w") as packed:
        for name in characters.NOVELS:
            packed.writestr(f"gutenberg/{name}.txt", text.encode("latin-1"))
    found = characters.novels()
    assert found.startswith("[Emma]\nCHAPTER I\nShe was handsome,\nand clever.\n")
    assert found.count("clever") == len(characters.NOVELS)
    (library / "gutenberg").mkdir()
    for name in characters.NOVELS:
        (library / "gutenberg" / f"{name}.txt").write_text("Unpacked £.", "latin-1")
    characters.novels.cache_clear()
    assert characters.novels().count("Unpacked") == len(characters.NOVELS)


def test_missing_novels_are_refused_with_what_to_do(library):
    with pytest.raises(FileNotFoundError, match=r"nltk\.downloader gutenberg.*NLTK_DATA"):
        characters.novels()
