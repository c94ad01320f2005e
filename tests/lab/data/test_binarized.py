"""Binarized digits: their content, the one draw of MNIST's pixels, and Larochelle's text format."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lab.data import test_idx

from layernorm.lab.data import binarized as module
from layernorm.lab.data.binarized import binarized, enlarged, read_amat, sampled
from layernorm.lab.data.digits import digits


@pytest.fixture(autouse=True)
def _read_anew():
    yield
    binarized.cache_clear()


def test_digits_are_those_of_the_data_set_twice_as_large():
    found, gray = binarized("digits"), digits()
    for part, count in (("train", 1197), ("validation", 300), ("test", 300)):
        pictures, pixels = getattr(found, part), getattr(gray, part).x
        assert pictures.shape == (count, 16, 16)
        assert set(pictures.unique().tolist()) == {0, 1}
        assert torch.equal(pictures, enlarged(pixels))
    assert found.sha256 == module.content("digits") == module.SHA256["digits"]


def test_enlarging_is_linear_interpolation_between_the_middles_of_pixels():
    """The middles of four pixels of a row 0, 1 are at -1/4, 1/4, 3/4, 5/4."""
    row = torch.tensor([[[0.0, 1.0]]])
    assert enlarged(row).tolist() == [[[0, 0, 1, 1]] * 2]
    assert enlarged(torch.tensor([[[0.4, 0.8]]]))[0, 0].tolist() == [0, 1, 1, 1]
    assert enlarged(torch.tensor([[[0.25, 0.75]]]))[0, 0].tolist() == [0, 0, 1, 1]


def test_a_pixel_is_as_often_1_as_it_is_gray():
    gray = torch.tensor([0, 1, 51, 254, 255], dtype=torch.uint8)
    drawn = sampled(gray[:, None, None].expand(5, 400, 100), seed=3)
    share = drawn.double().mean((1, 2))
    expected = gray.double() / 255
    error = (expected * (1 - expected) / 40_000).sqrt()
    assert share[0] == 0
    assert share[-1] == 1
    assert ((share - expected).abs() <= 6 * error).all()
    assert torch.equal(drawn, sampled(gray[:, None, None].expand(5, 400, 100), seed=3))
    assert not torch.equal(drawn, sampled(gray[:, None, None].expand(5, 400, 100), seed=4))


def test_the_draw_is_the_same_wherever_it_is_made():
    """The generator's first numbers, which NumPy keeps for ever."""
    random = np.random.RandomState(module.SEED).randint(0, 255, 6, dtype=np.uint8)
    assert random.tolist() == [39, 55, 7, 218, 212, 137]
    gray = torch.tensor([[[39, 56, 8, 218, 213, 255]]], dtype=torch.uint8)
    assert sampled(gray, module.SEED).tolist() == [[[0, 1, 1, 0, 1, 1]]]


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """Files in the form of MNIST's: six pictures to train on, two more, three for the test."""
    random = np.random.default_rng(0)
    arrays = []
    for count in (8, 3):
        arrays.append(random.integers(0, 256, (count, 4, 4), dtype=np.uint8))
        arrays.append(np.zeros(count, np.uint8))
    for n, array in enumerate(arrays):
        test_idx.write(tmp_path / str(n), 2048 + array.ndim, array.shape, array.tobytes())
    files = [SimpleNamespace(path=tmp_path / str(n)) for n in range(4)]
    monkeypatch.setattr(module, "MNIST", SimpleNamespace(fetch=lambda: files))
    monkeypatch.setattr(module, "TRAINING", 6)
    return torch.from_numpy(np.concatenate(arrays[::2]))


def test_mnist_is_split_into_the_first_the_next_and_those_of_the_test_file(
    small_mnist, monkeypatch
):
    monkeypatch.setattr(module, "SHA256", {})
    found = binarized("mnist")
    drawn = sampled(small_mnist, module.SEED)
    assert [len(found.train), len(found.validation), len(found.test)] == [6, 2, 3]
    assert torch.equal(torch.cat([found.train, found.validation, found.test]), drawn)


def test_other_data_than_the_pinned_ones_are_refused(small_mnist):
    with pytest.raises(ValueError, match="binarized mnist: expected content with sha256 1ea72"):
        binarized("mnist")


def test_runs_on_mnist_can_be_named_without_it(monkeypatch):
    monkeypatch.setattr(module, "binarized", None)
    assert module.content("mnist") == module.SHA256["mnist"]


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="one of digits, mnist, amat, got 'omniglot'"):
        binarized("omniglot")


def write_amat(path, pictures):
    lines = (" ".join(map(str, picture.flatten().tolist())) for picture in pictures)
    path.write_text("\n".join(lines) + " \n")


def test_larochelles_files_are_read_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    folder = tmp_path / "binarized_mnist"
    folder.mkdir()
    random = torch.Generator().manual_seed(0)
    pictures = {
        part: torch.randint(0, 2, (n, 28, 28), generator=random, dtype=torch.uint8)
        for n, part in enumerate(("train", "valid", "test"), 2)
    }
    for part, there in pictures.items():
        write_amat(folder / f"binarized_mnist_{part}.amat", there)
    found = binarized("amat")
    assert torch.equal(found.train, pictures["train"])
    assert torch.equal(found.validation, pictures["valid"])
    assert torch.equal(found.test, pictures["test"])
    assert module.content("amat") == found.sha256
    binarized.cache_clear()
    write_amat(folder / "binarized_mnist_test.amat", 1 - pictures["test"])
    assert binarized("amat").sha256 != found.sha256


def test_a_missing_file_says_where_it_belongs(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"binarized_mnist_train\.amat is not there: put"):
        binarized("amat")


def test_without_a_folder_of_data_the_current_one_is_not_read(tmp_path, monkeypatch):
    monkeypatch.delenv("LAYERNORM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binarized_mnist").mkdir()
    write_amat(tmp_path / "binarized_mnist" / "binarized_mnist_train.amat", torch.ones(1, 28, 28))
    with pytest.raises(FileNotFoundError, match=r"^\$LAYERNORM_DATA/binarized_mnist/"):
        binarized("amat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1 1 0\n1 0 1\n", "line 2: expected 2 x 2 pixels, got 3"),
        ("0 1 1 0\n\n1 0 1 2\n", r"line 3: expected pixels 0 or 1, got b'2'; binarize"),
        ("0 1 0.5 0\n", r"line 1: expected pixels 0 or 1, got b'0\.5'"),
        ("\n", "expected a picture a line, got an empty file"),
    ],
)
def test_what_is_no_amat_file_is_refused_by_line(tmp_path, text, message):
    file = tmp_path / "x.amat"
    file.write_text(text)
    with pytest.raises(ValueError, match=rf"x\.amat.*{message}"):
        read_amat(file, size=2)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    file = tmp_path / "x.amat"
    file.write_text("0 1 1 0\n")
    monkeypatch.setattr(module, "LARGEST", 3)
    with pytest.raises(ValueError, match="expected at most 3 bytes, got 8"):
        read_amat(file, size=2)
