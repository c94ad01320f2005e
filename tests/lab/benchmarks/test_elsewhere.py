"""Speeds that others published: complete and plausible."""

import pytest
import yaml

from layernorm.lab.benchmarks import elsewhere


def test_times_follow_from_bytes():
    """4096 rows of 16384 float32 numbers, read and written: 537 MB; at 2.91 TB/s 184 µs."""
    (line,) = [
        line
        for line in elsewhere.published().lines
        if line[:4] == ["layer, forward, float32", "H100", "16384", "Liger"]
    ]
    assert line[4:8] == ["2.91", "87%", "160", "184"]
    assert line[8] == "linkedin/Liger-Kernel v0.6.0 (2025)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "B200"}, "does not describe B200"),
        ({"mode": "sideways"}, "sideways"),
        ({"tb_per_s": 33.5}, "whose memory has 3.35"),
        ({"tb_per_s": 0}, "whose memory has"),
    ],
)
def test_a_wrong_row_is_refused(change, message, tmp_path, monkeypatch):
    content = yaml.safe_load(elsewhere.FILE.read_text(encoding="utf-8"))
    content["norms"][0] |= change
    file = tmp_path / "elsewhere.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    monkeypatch.setattr(elsewhere, "FILE", file)
    with pytest.raises(ValueError, match=message):
        elsewhere.published()


def test_a_recurrent_layer_is_far_from_what_its_bytes_take():
    """512 steps of 16 x (512 + 512) numbers of two bytes and 196608 weights: 17.2 MB, at 8 TB/s
    2.1 µs; published are 28.3 ms, 55 µs a step."""
    table = elsewhere.recurrent()
    (line,) = [one for one in table.lines if one[2].startswith("512,") and "Triton" in one[3]]
    assert line[4:7] == ["28.3", "55", "2.1"]
    assert line[-1] == "pytorch/rl#4160 (2026)"
    assert "published by others" in table.title
