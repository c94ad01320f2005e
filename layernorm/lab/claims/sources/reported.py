"""The paper's own results, copied from its text and tables; statements about the paper are checked
against them. Ba, Kiros and Hinton 2016, arXiv:1607.06450, sections 6.1 to 6.7."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Args:
        title: what is learned.
        model_by: who introduced the model, as the paper says; "" where it names nobody.
        recurrent: whether the model is a recurrent network.
        compared: the methods that the paper runs or plots.
        winner: the method that the paper says does best.
        preliminary: reported in words, without numbers.
    """

    title: str
    model_by: str
    recurrent: bool
    compared: tuple[str, ...]
    winner: str
    preliminary: bool = False


EXPERIMENTS = {
    "6.1": Experiment(
        "image-sentence ranking", "Vendrov et al. 2016", True, ("none", "layer"), "layer"
    ),
    "6.2": Experiment(
        "question answering", "Hermann et al. 2015", True, ("none", "batch", "layer"), "layer"
    ),
    "6.3": Experiment(
        "contextual language modelling", "Kiros et al. 2015", True, ("none", "layer"), "layer"
    ),
    "6.4": Experiment(
        "generative modelling", "Gregor et al. 2015", True, ("none", "layer"), "layer"
    ),
    "6.5": Experiment("handwriting generation", "Graves 2013", True, ("none", "layer"), "layer"),
    "6.6": Experiment("MNIST classification", "", False, ("none", "batch", "layer"), "layer"),
    "6.7": Experiment(
        "convolutional networks", "", False, ("none", "batch", "layer"), "batch", preliminary=True
    ),
}

# Table 2, order-embeddings, test set: caption retrieval, then image retrieval; R@K in percent
# (higher is better), mean rank (lower is better).
TABLE_2_COLUMNS = ("R@1", "R@5", "R@10", "mean r") * 2
TABLE_2 = {
    "none": (46.6, 79.3, 89.1, 5.2, 37.8, 73.6, 85.7, 7.9),
    "layer": (48.5, 80.6, 89.8, 5.1, 38.9, 74.3, 86.3, 7.6),
}

# Table 3, skip-thoughts: three measures of SICK (MSE: lower is better), accuracy of the others.
TABLE_3_COLUMNS = ("SICK r", "SICK rho", "SICK MSE", "MR", "CR", "SUBJ", "MPQA")
TABLE_3 = {
    "none": (0.842, 0.767, 0.298, 77.3, 81.8, 92.6, 87.9),
    "layer": (0.854, 0.785, 0.277, 79.5, 82.6, 93.4, 89.0),
    "layer, one month": (0.858, 0.788, 0.270, 79.4, 83.1, 93.7, 89.3),
}
LOWER_IS_BETTER = ("mean r", "SICK MSE")


def worse(before: tuple[float, ...], after: tuple[float, ...], columns: tuple[str, ...]) -> list:
    """The columns in which `after` is not better than `before`."""
    return [
        name
        for name, old, new in zip(columns, before, after, strict=True)
        if not (new < old if name in LOWER_IS_BETTER else new > old)
    ]
