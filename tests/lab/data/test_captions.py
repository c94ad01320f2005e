"""Real features and captions: both layouts, and files that are refused with file and line."""

import numpy as np
import pytest
import torch

from layernorm.lab.data import captions
from layernorm.lab.data.captions import CaptionError

FEATURES = np.arange(12, dtype=np.float32).reshape(3, 4)
LINES = [f"caption {i} of image {i // 5}" for i in range(15)]


def order_embedding(folder, features=FEATURES, lines=LINES, name="train"):
    (folder / "images" / "10crop").mkdir(parents=True, exist_ok=True)
    np.save(folder / "images" / "10crop" / f"{name}.npy", features)
    (folder / f"{name}.txt").write_bytes("\n".join(lines).encode() + b"\n")
    return folder


def f8k(folder, features=FEATURES, lines=LINES, name="f8k_dev"):
    np.save(folder / f"{name}_ims.npy", features)
    (folder / f"{name}_caps.txt").write_bytes("\n".join(lines).encode())
    return folder


@pytest.mark.parametrize(
    ("write", "part"),
    [
        (order_embedding, "train"),
        (lambda folder: order_embedding(folder, name="val"), "validation"),
        (f8k, "validation"),
        (lambda folder: f8k(folder, name="f30k_train"), "train"),
        (lambda folder: f8k(folder, np.repeat(FEATURES, 5, 0)), "validation"),
    ],
)
def test_both_layouts_are_read(write, part, tmp_path):
    found = captions.read(write(tmp_path), part)
    assert torch.equal(found.features, torch.from_numpy(FEATURES))
    assert found.captions == LINES
    assert len(found) == 3


def test_features_of_other_types_are_read_as_float32(tmp_path):
    found = captions.read(order_embedding(tmp_path, FEATURES.astype(np.float64)), "train")
    assert found.features.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lines": LINES[:-1]}, r"train\.txt:15: expected 5 captions for each of the 3 images in "
                                r"train\.npy, 15 lines, got 14"),
        ({"lines": [*LINES, "one more"]}, r"train\.txt:16: expected 5 captions .* got 16"),
        ({"lines": [*LINES[:6], " ", *LINES[7:]]},
         r"train\.txt:7: expected a caption, got an empty line"),
        ({"features": FEATURES[0]},
         r"train\.npy: expected features of shape \(images, units\), got \(4,\)"),
        ({"features": FEATURES[:0]}, r"expected features of shape \(images, units\), got \(0, 4\)"),
        ({"features": np.where(FEATURES == 6, np.nan, FEATURES)},
         r"train\.npy: expected finite numbers, image 1 \(from 0\) has others"),
        ({"features": FEATURES.astype(complex)}, "expected real numbers, got complex128"),
        ({"features": FEATURES.astype(str)}, "expected real numbers, got <U32"),
        ({"features": np.array([{}], dtype=object)}, "expected a whole"),  # not unpickled
    ],
)  # fmt: skip
def test_wrong_captions_and_features_are_refused_by_name(change, message, tmp_path):
    with pytest.raises(CaptionError, match=message):
        captions.read(order_embedding(tmp_path, **change), "train")


def test_bytes_that_are_no_utf8_are_refused_with_their_line(tmp_path):
    order_embedding(tmp_path)
    broken = "\n".join(LINES).encode().replace(b"caption 3", b"caf\xe9 3")
    (tmp_path / "train.txt").write_bytes(broken)
    with pytest.raises(
        CaptionError, match=r"train\.txt:4: expected UTF-8, got byte 0xe9 in col.* 4"
    ):
        captions.read(tmp_path, "train")


@pytest.mark.parametrize("cut", [0, 40, 150])
def test_a_truncated_feature_file_is_refused(cut, tmp_path):
    order_embedding(tmp_path)
    path = tmp_path / "images" / "10crop" / "train.npy"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CaptionError, match=r"train\.npy: expected a whole \.npy file of numbers"):
        captions.read(tmp_path, "train")


def test_repeated_rows_must_be_the_same_image(tmp_path):
    features = np.repeat(FEATURES, 5, 0)
    features[7] += 1
    with pytest.raises(CaptionError, match=r"rows 5 to 9 \(from 0\) must be the same image"):
        captions.read(f8k(tmp_path, features), "validation")


def test_missing_files_and_parts_are_refused_with_what_is_expected(tmp_path):
    order_embedding(tmp_path)
    (tmp_path / "train.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"expected train\.txt and images/10crop/train\.npy"
    ):
        captions.read(tmp_path, "train")
    with pytest.raises(ValueError, match="part must be one of validation, train, test, got 'dev'"):
        captions.read(tmp_path, "dev")


def test_the_hash_is_of_all_content(tmp_path):
    for name in ("train", "val", "test"):
        order_embedding(tmp_path, name=name)
    before = captions.sha256(tmp_path)
    order_embedding(tmp_path, lines=[*LINES[:-1], "another"], name="test")
    assert captions.sha256(tmp_path) != before


def test_frequent_words_come_first_and_rare_ones_can_be_left_out():
    said = ["b a", "b c a", "b"]
    assert captions.vocabulary(said) == {"b": 2, "a": 3, "c": 4}
    words = captions.vocabulary(said, at_least=2)
    table, lengths = captions.encoded(said, words)
    assert table.tolist() == [[2, 3, 0], [2, 1, 3], [2, 0, 0]]
    assert lengths.tolist() == [2, 3, 1]
