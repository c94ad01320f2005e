"""IAM-OnDB from files in its form, written here: what comes out, and what is refused, by name."""

import re

import numpy as np
import pytest

from layernorm.lab.data import iam_ondb
from layernorm.lab.data.handwriting import said
from layernorm.lab.data.iam_ondb import HandwritingError, load

XML = """<?xml version="1.0" encoding="ISO-8859-1"?>
<WhiteboardCaptureSession><WhiteboardDescription><SensorLocation corner="top_left"/>
</WhiteboardDescription><StrokeSet>{}</StrokeSet></WhiteboardCaptureSession>"""
TWO = [[(10, 50), (12, 47), (15, 47)], [(30, 40), (31, 44)]]
LISTS = {"trainset": "a01-000u", "testset_t": "a01-001x", "testset_v": "b02-003z"}
LISTS |= {"testset_f": "c01-009z"}


def xml(strokes):
    point = '<Point x="{}" y="{}" time="1.5"/>'
    inner = ("".join(point.format(*p) for p in stroke) for stroke in strokes)
    return XML.format("".join(f'<Stroke colour="black">{s}</Stroke>' for s in inner))


@pytest.fixture
def folder(tmp_path):
    """Four forms of two lines each, one in each list."""
    for name, form in LISTS.items():
        (tmp_path / f"{name}.txt").write_text(f"{form}\n")
        for part in ("lineStrokes", "ascii"):
            (tmp_path / part / form[:3] / form[:7]).mkdir(parents=True)
        for number in (1, 2):
            strokes(tmp_path, form, number).write_text(xml(TWO[:number]))
        text = "OCR:\n\nsome text\n\nCSR:\n\nBy Trevor,\nin 1960 é\n"
        transcript(tmp_path, form).write_text(text, encoding="latin-1")
    yield tmp_path
    load.cache_clear()


def strokes(folder, form="a01-000u", number=1):
    return folder / "lineStrokes" / form[:3] / form[:7] / f"{form}-{number:02d}.xml"


def transcript(folder, form="a01-000u"):
    return folder / "ascii" / form[:3] / form[:7] / f"{form}.txt"


def test_points_are_offsets_with_y_upwards_and_a_bit_where_the_pen_is_lifted(folder):
    got = iam_ondb.points(strokes(folder, number=2))
    expected = [[0, 0, 0], [2, 3, 0], [3, 0, 1], [15, 7, 0], [1, -4, 1]]
    np.testing.assert_array_equal(got, expected)


def test_lines_of_all_lists_with_their_text(folder):
    parts = load(points=4, folder=folder)
    assert {name: len(lines) for name, lines in parts.items()} == {
        "train": 4, "validation": 2, "test": 2,
    }  # fmt: skip
    assert said(parts["train"]) == ["By Trevor,", "in ???? ?"] * 2
    assert parts["train"].lengths.tolist() == [3, 4, 3, 4]  # the second line is cut
    moves = parts["train"].points[..., :2][parts["train"].points.abs().sum(-1) > 0]
    assert moves.mean(0).abs().max() < 0.2
    assert (parts["test"].scale == parts["train"].scale).all()


def test_where_it_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"is not in {tmp_path / 'iam_ondb'}; re")
    ):
        load(5)
    monkeypatch.delenv("LAYERNORM_DATA")
    with pytest.raises(FileNotFoundError, match=re.escape("not in $LAYERNORM_DATA/iam_ondb; reg")):
        load(5)


NO_XML = "not the XML of a line's strokes: "


@pytest.mark.parametrize(
    ("which", "content", "message"),
    [
        (strokes, "<WhiteboardCaptureSession><StrokeSet>", NO_XML + "ParseError"),
        (strokes, "", NO_XML + "ParseError"),
        (strokes, xml([]), "has no strokes"),
        (strokes, xml([TWO[0], []]), "stroke 2 has no points"),
        (strokes, XML.format('<Stroke><Point x="1"/></Stroke>'), NO_XML + "KeyError"),
        (strokes, xml([[(1, "two")]]), NO_XML + "ValueError"),
        (strokes, xml([[(1, "nan")]]), "has a coordinate that is not a finite number"),
        (transcript, "no mark\n\nBy Trevor\n", "expected lines of text after a"),
        (transcript, "OCR:\n\nBy\n\nCSR:\n\n", "expected lines of text after a"),
        (transcript, None, "cannot be read: No such file"),
        (lambda folder: folder / "testset_v.txt", "\n", "names no form"),
    ],
)
def test_a_broken_or_missing_file_is_refused_by_name(folder, which, content, message):
    file = which(folder)
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(HandwritingError, match=re.escape(f"{file}: {message}")):
        load(9, folder)


@pytest.mark.parametrize(("lines", "files"), [("a\n", 2), ("a\nb\nc\n", 2), ("a\nb\n", 0)])
def test_a_count_that_is_off_is_refused(folder, lines, files):
    transcript(folder).write_text(f"CSR:\n\n{lines}")
    if not files:
        for number in (1, 2):
            strokes(folder, number=number).unlink()
    message = f"{transcript(folder)}: has {len(lines) // 2} lines of text, but "
    with pytest.raises(HandwritingError, match=re.escape(message)) as refused:
        load(9, folder)
    assert f"has {files} files a01-000u-….xml" in str(refused.value)
