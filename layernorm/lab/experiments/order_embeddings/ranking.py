r"""Retrieval of captions by images and of images by captions: ranks, Recall@K, and a baseline.

An energy says how little a caption fits an image. A rank is the number of wrong candidates that fit
at least as well as the best right one, so that ties count against: 0 is right at once. Recall@K is
the percentage of queries whose rank is below K; the mean rank is counted from 1, as in the paper.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from layernorm.lab.data.captions import EACH
from layernorm.lab.experiments.order_embeddings.data import Part

KS = (1, 5, 10)
BLOCK = 100  # captions whose energies are computed at once: they stay in the cache
COUNTED = 20_000  # captions that the trivial strategy learns from
RIDGE = 1.0


def order_violation(
    captions: Float[Tensor, "n d"], images: Float[Tensor, "m d"]
) -> Float[Tensor, "n m"]:
    r"""$E(s, v) = \sum_k \max(0, s_k - v_k)^2$ for every caption s and image v.

    0 if the caption lies above the image in every coordinate's order, $s \le v$: it asks for
    nothing that the image has not.

    >>> order_violation(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 3.0], [2.0, 1.0]]))
    tensor([[0.2500, 0.0000]])
    """
    return (captions[:, None] - images).clamp(min=0).square().sum(-1)


def negative_product(
    captions: Float[Tensor, "n d"], images: Float[Tensor, "m d"]
) -> Float[Tensor, "n m"]:
    """The energy of the symmetric baseline: minus the cosine, for embeddings of length 1."""
    return -captions @ images.T


@torch.no_grad()
def many_violations(
    captions: Float[Tensor, "n d"], images: Float[Tensor, "m d"]
) -> Float[Tensor, "n m"]:
    """`order_violation` of thousands, coordinate by coordinate in blocks, without its third
    dimension in memory."""
    found = captions.new_zeros(len(captions), len(images))
    columns = images.T.contiguous()
    for i in range(0, len(captions), BLOCK):
        block = captions[i : i + BLOCK].T.contiguous()
        for s, v in zip(block, columns, strict=True):
            above = (s[:, None] - v).clamp_(min=0)
            found[i : i + BLOCK].addcmul_(above, above)
    return found


def ranks(energy: Float[Tensor, "m n"]) -> tuple[Int[Tensor, " n"], Int[Tensor, " m"]]:
    """Ranks of caption retrieval, one an image, and of image retrieval, one a caption.

    Caption i belongs to image i // 5. Caption retrieval counts the best of an image's five; the
    other four are no wrong candidates. A fit that is not a number is no fit.

    >>> energy = torch.ones(10, 2)
    >>> energy[1, 0], energy[7, 1] = 0.0, 2.0
    >>> ranks(energy)
    (tensor([0, 5]), tensor([1, 0, 1, 1, 1, 1, 1, 1, 1, 1]))
    """
    energy = energy.nan_to_num(torch.inf)
    owner = torch.arange(len(energy), device=energy.device) // EACH
    own = owner[:, None] == torch.arange(energy.shape[1], device=energy.device)
    best = energy.masked_fill(~own, torch.inf).amin(0)
    of_images = ((energy <= best) & ~own).sum(0)
    right = energy.gather(1, owner[:, None])
    of_captions = ((energy <= right) & ~own).sum(1)
    return of_images, of_captions


def recall(rank: Int[Tensor, " n"], k: int) -> float:
    """The percentage of ranks below k."""
    return 100 * float((rank < k).double().mean())


def scores(energy: Float[Tensor, "m n"]) -> dict[str, float]:
    """Table 2's eight columns, `caption_…` and `image_…` retrieval: `r1`, `r5`, `r10` in percent,
    `rank`; and `missed`, 100 less the mean of the six recalls."""
    found = {}
    for what, rank in zip(("caption", "image"), ranks(energy), strict=True):
        found |= {f"{what}_r{k}": recall(rank, k) for k in KS}
        found[f"{what}_rank"] = 1 + float(rank.double().mean())
    recalls = [value for name, value in found.items() if not name.endswith("rank")]
    return {**found, "missed": 100 - sum(recalls) / len(recalls)}


@torch.no_grad()
def bag_of_words(train: Part, test: Part, vocabulary: int) -> Float[Tensor, "m n"]:
    """Energies of a strategy that reads no sentence: features are predicted from how often each
    word occurs, by ridge regression, and compared with those of the images by their cosine."""

    def counts(part: Part, captions: int) -> Float[Tensor, "k words"]:
        words = part.words[:captions]
        table = torch.zeros(len(words), vocabulary, device=words.device)
        table.scatter_add_(1, words, torch.ones_like(words, dtype=table.dtype))
        table[:, 0] = 1  # padding becomes the constant
        return table

    x = counts(train, COUNTED)
    images = torch.arange(len(x), device=x.device) // EACH
    features = train.features(slice(0, int(images[-1]) + 1))
    mean = features.mean(0)
    gram = x.T @ x + RIDGE * torch.eye(vocabulary, device=x.device)
    weights = torch.linalg.solve(gram, x.T @ (features - mean)[images])
    said = normalize(counts(test, len(test.words)) @ weights, dim=1)
    return negative_product(said, normalize(test.features() - mean, dim=1))
