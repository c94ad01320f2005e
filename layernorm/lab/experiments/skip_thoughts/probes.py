r"""Judging frozen sentence vectors: a linear classifier on top, as Kiros et al. (2015) did it.

- Two classes: logistic regression. At the end of a run by nested cross-validation: ten folds give
  the error, and in each of them ten inner folds of the other nine choose the penalty C from 1, 2,
  4 ... 256; some 900 fits. Along the curves one fixed penalty and one fixed half.
- Pairs: from vectors u, v the features [|u - v|; u * v], and a softmax over the scores 1 to 5 whose
  target spreads a score over the two whole numbers beside it (Tai et al. 2015),
  $p_{\lfloor y \rfloor} = \lfloor y \rfloor + 1 - y$, $p_{\lfloor y \rfloor + 1} = y - \lfloor y
  \rfloor$; the prediction is its mean. Adam, until the correlation on the development part falls.

Source: eval_classification.py and eval_sick.py of github.com/ryankiros/skip-thoughts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layernorm.lab.data.sentence_tasks import Classes, Pairs

PENALTIES = tuple(2.0**k for k in range(9))
FOLDS = 10
FIXED = 16.0  # the penalty along the curves, the middle of those
SHOWN = 2000  # sentences of a task along the curves, one half to learn from
SCORES = 5
EPOCHS, ROUNDS = 100, 20  # of Adam between two looks at the development part, and looks at most
RATE = (
    0.01  # ten times Keras' default, as our vectors have a twenty-fifth of the original's numbers
)


def logistic(penalty: float):
    """scikit-learn's logistic regression with that C, by Newton's method."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=penalty, solver="newton-cholesky", max_iter=200, warm_start=True)


def error(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, " n"],
    test_x: Float[np.ndarray, "m d"],
    test_y: Int[np.ndarray, " m"],
    penalty: float = FIXED,
) -> float:
    """The error in percent on test cases of a classifier that learned from the others."""
    return 100 * float(np.mean(logistic(penalty).fit(x, y).predict(test_x) != test_y))


def nested_error(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, " n"],
    folds: int = FOLDS,
    penalties: Sequence[float] = PENALTIES,
) -> float:
    """The mean error in percent over folds, each with the penalty that its other folds choose.

    Folds are runs of the given order, as in the original; of equal penalties the smallest C wins.
    """
    from sklearn.model_selection import KFold

    errors = []
    for train, test in KFold(folds).split(x):
        inner = np.zeros(len(penalties))
        for a, b in KFold(folds).split(train):
            model = logistic(FIXED)
            for k, model.C in enumerate(penalties):  # each fit begins where the last one ended
                fitted = model.fit(x[train[a]], y[train[a]])
                inner[k] += np.mean(fitted.predict(x[train[b]]) != y[train[b]])
        best = penalties[int(np.argmin(inner))]
        errors.append(error(x[train], y[train], x[test], y[test], best))
    return float(np.mean(errors))


def soft_targets(scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
    """
    >>> soft_targets(np.array([3.6, 5.0])).round(2).tolist()
    [[0.0, 0.0, 0.4, 0.6, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]
    """
    return np.clip(1 - np.abs(scores[:, None] - np.arange(1, SCORES + 1)), 0, None)


def pair_features(
    u: Float[np.ndarray, "n d"], v: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "n two_d"]:
    return np.concatenate([np.abs(u - v), u * v], 1)


def correlations(
    predicted: Float[np.ndarray, " n"], scores: Float[np.ndarray, " n"]
) -> dict[str, float]:
    """Pearson's r, Spearman's rho, and the mean squared error; r and rho are 0 for a constant."""
    from scipy.stats import spearmanr

    mse = float(np.mean((predicted - scores) ** 2))
    if np.ptp(predicted) == 0 or np.ptp(scores) == 0:
        return {"r": 0.0, "rho": 0.0, "mse": mse}
    r = float(np.corrcoef(predicted, scores)[0, 1])
    return {"r": r, "rho": float(spearmanr(predicted, scores).statistic), "mse": mse}


class SoftRegression:
    """The softmax over scores; weights start at 0, so nothing about it is random."""

    def __init__(self, features: int) -> None:
        self.weight = torch.zeros(features, SCORES, requires_grad=True)
        self.bias = torch.zeros(SCORES, requires_grad=True)

    def logits(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        return x @ self.weight + self.bias

    @torch.no_grad()
    def predict(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        chances = self.logits(torch.from_numpy(x).float()).softmax(1).double().numpy()
        return chances @ np.arange(1, SCORES + 1)

    @torch.enable_grad()
    def fit(self, x, scores, development, development_scores, epochs=EPOCHS, batch=128) -> None:
        """Adam in passes over the cases in their order; stops at the first look at which the
        correlation on the development part is not better, and goes back to the best."""
        rows = torch.from_numpy(x).float()
        targets = torch.from_numpy(soft_targets(scores)).float()
        adam = torch.optim.Adam([self.weight, self.bias], lr=RATE)
        best, kept = -math.inf, (self.weight.detach().clone(), self.bias.detach().clone())
        for _ in range(ROUNDS):
            for _ in range(epochs):
                for i in range(0, len(rows), batch):
                    logits = self.logits(rows[i : i + batch])
                    loss = torch.nn.functional.cross_entropy(logits, targets[i : i + batch])
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
            r = correlations(self.predict(development), development_scores)["r"]
            if not r > best:
                break
            best, kept = r, (self.weight.detach().clone(), self.bias.detach().clone())
        with torch.no_grad():
            self.weight.copy_(kept[0])
            self.bias.copy_(kept[1])


def relatedness(task: Pairs, features: Float[np.ndarray, "n d"]) -> dict[str, float]:
    """`r`, `rho` and `mse` of the test pairs, as the original measures them."""
    train, dev, test = (task.rows(part) for part in ("train", "development", "test"))
    model = SoftRegression(features.shape[1])
    model.fit(features[train], task.scores[train], features[dev], task.scores[dev])
    return correlations(model.predict(features[test]), task.scores[test])


def quick_relatedness(
    x: Float[np.ndarray, "n d"],
    scores: Float[np.ndarray, " n"],
    test_x: Float[np.ndarray, "m d"],
    test_scores: Float[np.ndarray, " m"],
) -> dict[str, float]:
    """The same with one fixed penalty: a pair counts for both whole scores beside its own."""
    targets = soft_targets(scores)
    row, score = np.nonzero(targets)
    fitted = logistic_of_many(x[row], score + 1, targets[row, score])
    return correlations(fitted.predict_proba(test_x) @ fitted.classes_, test_scores)


def logistic_of_many(x, y, weights):
    """Logistic regression over several classes, with a weight for each case."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=FIXED, solver="lbfgs", max_iter=1000, tol=1e-3)
    return model.fit(x, y, sample_weight=weights)


def shown(task: Classes | Pairs) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """The cases along the curves: those to learn from and those that are judged."""
    if isinstance(task, Pairs):
        return task.rows("train")[: SHOWN // 2], task.rows("test")[: SHOWN // 2]
    rows = np.arange(min(SHOWN, len(task.labels)))
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]
