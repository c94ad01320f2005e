"""Handwritten digits of 8x8 pixels, embedded in scikit-learn: the default data set everywhere."""

import torch

from layernorm.lab.data.dataset import Dataset
from layernorm.lab.data.splits import Splits, scaled

SHA256 = "82eae2ca1ed1bbdbf012ce78f6d36a56a44c3b7f5dcaf664b8e8ff735288fe58"


def digits() -> Splits:
    """1797 digits of 8x8 pixels in ten classes, split once and for all.

    Pixels are the file's 0..16 divided by 16. The split uses no random numbers: examples are
    sorted by class (order within a class kept) and, counting through that list, every sixth is
    a test example and the one after it a validation example. So each part holds each class in
    equal proportion up to one example: 1197 for training, 300 for validation, 300 for test.
    Within a part the examples stand in the file's order, which follows the writers: shuffle.

    Needs no network. Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten
    Digits, UCI Machine Learning Repository (its test file, 13 writers), CC BY 4.0.

    Raises:
        ModuleNotFoundError: scikit-learn, which carries the data, is not installed.
        ValueError: the installed scikit-learn carries other data than the pinned ones.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "digits() reads the data that scikit-learn carries, and scikit-learn is not "
            "installed; install it with: pip install 'layernorm[data]'"
        ) from error
    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images).to(torch.uint8)
    labels = torch.from_numpy(bunch.target).to(torch.uint8)
    place = torch.empty(len(labels), dtype=torch.int64)
    place[labels.long().argsort(stable=True)] = torch.arange(len(labels)) % 6
    chosen = {"train": place > 1, "validation": place == 1, "test": place == 0}
    parts = {part: (pixels[mask], labels[mask]) for part, mask in chosen.items()}
    splits = scaled("digits", parts, maximum=16)
    if splits.sha256 != SHA256:
        raise ValueError(
            f"digits: expected content with sha256 {SHA256}, got {splits.sha256}; the installed "
            "scikit-learn carries other data: reinstall it (pip install --force-reinstall "
            "scikit-learn), because results on other data cannot be compared"
        )
    return splits


DIGITS = Dataset(
    name="digits",
    what="1,797 handwritten digits of 8x8 pixels, ten classes (1,197/300/300)",
    license="CC BY 4.0",
    source="E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, in scikit-learn",
    load=digits,
    content=SHA256,
    default=True,
)
