"""The data sets: their fixed splits, and the errors when something they need is missing."""

import sys

import pytest
import torch

from layernorm.lab import data


@pytest.fixture(scope="module")
def digits():
    return data.digits()


def test_digits_are_float32_in_zero_one_with_int64_labels(digits):
    for part in (digits.train, digits.validation, digits.test):
        assert part.x.dtype == torch.float32
        assert part.y.dtype == torch.int64
        assert part.x.shape == (len(part), 8, 8)
        assert part.x.min() == 0
        assert part.x.max() == 1


def test_digits_split_is_a_partition_of_the_whole_file(digits):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    rows = torch.from_numpy(bunch.images).flatten(1) / 16
    whole = sorted((*row, y) for row, y in zip(rows.tolist(), bunch.target.tolist(), strict=True))
    parts = (digits.train, digits.validation, digits.test)
    split = sorted(
        (*row, y)
        for part in parts
        for row, y in zip(part.x.flatten(1).tolist(), part.y.tolist(), strict=True)
    )
    assert split == whole
    assert [len(part) for part in parts] == [1197, 300, 300]


def test_digits_split_is_stratified(digits):
    parts = (digits.train, digits.validation, digits.test)
    counts = torch.stack([torch.bincount(part.y, minlength=10) for part in parts])
    share = torch.tensor([4 / 6, 1 / 6, 1 / 6]).unsqueeze(1)
    assert ((counts - share * counts.sum(0)).abs() <= 1).all()


def test_digits_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'layernorm\[data\]'"):
        data.digits()


def test_digits_of_another_scikit_learn_are_refused(monkeypatch):
    import sklearn.datasets

    bunch = sklearn.datasets.load_digits()
    bunch.images[7, 3, 3] += 1
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: bunch)
    with pytest.raises(ValueError, match=r"expected content with sha256 82eae2ca.*got"):
        data.digits()
