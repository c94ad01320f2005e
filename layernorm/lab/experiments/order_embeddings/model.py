r"""Order-embeddings, and what a run of them trains.

A caption's words are embedded and read by a GRU; its last state, and the features f of an image
under a linear map, are scaled to length 1 and made positive:

$$ s = \left|\frac{h_T}{\lVert h_T\rVert}\right|, \qquad
   v = \left|\frac{W f}{\lVert W f\rVert}\right|, \qquad
   E(s, v) = \sum_k \max(0, s_k - v_k)^2 $$

The loss is summed over a batch of pairs (s_i, v_i), with the wrong captions of each image and the
wrong images of each caption:

$$ \sum_{i} \sum_{j \ne i} \max\big(0, m + E(s_i, v_i) - E(s_i, v_j)\big)
   + \max\big(0, m + E(s_i, v_i) - E(s_j, v_i)\big) $$

The symmetric baseline has E = -s · v without the absolute values, and a margin of its own.

Source: Vendrov et al. 2016 with their code: words and input weights start uniform in ±0.1,
recurrent weights orthogonal, W as Xavier.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from layernorm.lab.data.captions import EACH
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.lab.experiments.order_embeddings import data, ranking
from layernorm.lab.experiments.order_embeddings.data import Part
from layernorm.recurrent import LayerNormGRU

METHODS = ("none", "layer")
START = 0.1  # words and input weights start uniform between -START and START
CHUNK = 500  # captions read at once when they are not trained on
SCALED_ON = 256  # images over whose captions the control's summed inputs get unit variance


class OrderEmbedding(nn.Module):
    """The equations of this module's first lines."""

    def __init__(self, options, vocabulary: int, features: int) -> None:
        super().__init__()
        self.symmetric = options.symmetric
        self.words = nn.Embedding(vocabulary, options.embedding)
        nn.init.uniform_(self.words.weight, -START, START)
        self.gru = recurrent(options)
        self.image = nn.Linear(features, options.hidden, bias=False)
        nn.init.xavier_uniform_(self.image.weight)

    def captions(
        self, words: Int[Tensor, "n t"], lengths: Int[Tensor, " n"]
    ) -> Float[Tensor, "n d"]:
        """Each caption's s, from the state after its last word: padding behind it has no effect."""
        states = self.gru(self.words(words.T))[0]
        last = states[lengths - 1, torch.arange(len(words), device=words.device)]
        return self.placed(last)

    def images(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        return self.placed(self.image(features))

    def placed(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        x = normalize(x, dim=1)
        return x if self.symmetric else x.abs()

    def energy(
        self, s: Float[Tensor, "n d"], v: Float[Tensor, "m d"], many: bool = False
    ) -> Float[Tensor, "n m"]:
        """Return the violation of each caption and image; `many`: without gradients."""
        if self.symmetric:
            return ranking.negative_product(s, v)
        return (ranking.many_violations if many else ranking.order_violation)(s, v)


def recurrent(options) -> nn.Module:
    """The GRU of a method. Both start from the same weights, and biases 0."""
    gru = nn.GRU(options.embedding, options.hidden)
    nn.init.uniform_(gru.weight_ih_l0, -START, START)
    for gate in gru.weight_hh_l0.data.chunk(3):
        nn.init.orthogonal_(gate)
    nn.init.zeros_(gru.bias_ih_l0)
    nn.init.zeros_(gru.bias_hh_l0)
    if options.method == "none":
        return gru
    with torch.random.fork_rng(devices=[]):  # the rest of the model is drawn as without a method
        layer = LayerNormGRU(options.embedding, options.hidden)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(gru.weight_ih_l0)
        layer.weight_hh_l0.copy_(gru.weight_hh_l0)
        layer.bias_ih_l0.zero_()
    return layer


def pair_loss(energy: Float[Tensor, "n n"], margin: float) -> Float[Tensor, ""]:
    """The loss of a batch whose right pairs are on the diagonal.

    >>> pair_loss(torch.tensor([[0.1, 0.3], [0.1, 0.2]]), 0.25)
    tensor(0.8000)
    """
    right = energy.diagonal()
    cost = (margin + right[:, None] - energy).relu() + (margin + right - energy).relu()
    return cost.fill_diagonal_(0).sum()


@torch.no_grad()
def rescale_(model: OrderEmbedding, part: Part, rounds: int = 30) -> None:
    """Scale the weights so that each term of the GRU's summed inputs starts with unit variance.

    The control arm `rescaled`: the words' numbers, W_x x and W_h h, each by one factor, over the
    first words of a part's first captions, as many as the shortest has. The state depends on its
    own weights, so their factor is found again and again. W stays: the length of W f is divided
    out, and a larger W would only learn more slowly. Raises `RuntimeError` where the factor does
    not settle within 1%.
    """
    images = torch.arange(min(SCALED_ON, len(part)))
    model.words.weight /= model.words.weight.std()
    words, lengths = part.told(EACH * images)
    x = model.words(words[:, : int(lengths.min())].T)
    gru = model.gru
    gru.weight_ih_l0 /= (x @ gru.weight_ih_l0.T).std()

    def spread() -> Float[Tensor, ""]:
        return (gru(x)[0] @ gru.weight_hh_l0.T).std()

    for _ in range(rounds):
        gru.weight_hh_l0 /= spread()
    if abs(left := float(spread()) - 1) > 0.01:
        raise RuntimeError(
            f"the recurrent summed inputs' standard deviation is {1 + left:.3f} after {rounds} "
            "rounds of scaling, not 1; use more rounds"
        )


class OrderEmbeddings:
    """The task: bring captions and their images together. An update sees each image of its batch
    once, with one of its five captions; a seed is tested on one of the folds, seeds in turn."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        of = (options.dataset, options.scenes, options.held_out, options.folds, options.units)
        self.seed, self.margin = seed, options.margin
        self.data = data.made(*of)
        train = self.data.train
        if options.examples is not None:
            train = train.first(options.examples)
        self.shuffled = Shuffled(len(train), options.batch_size, seed)
        vocabulary = len(self.data.vocabulary) + 2
        model = OrderEmbedding(options, vocabulary, train.features(slice(0, 1)).shape[1])
        if options.rescaled:
            rescale_(model, train)
        self.model, self.train = model.to(device), train.to(device)
        test = self.data.folds[seed % options.folds]
        self.parts = {"validation": self.data.validation.to(device), "test": test.to(device)}
        if options.examples is not None:
            self.parts["train"] = self.train

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The images of an update, and the caption of each."""
        images = self.shuffled(step)
        drawn = torch.randint(EACH, images.shape, generator=generator(self.seed, step))
        return images, EACH * images + drawn

    def loss(self, step: int) -> Tensor:
        images, captions = self.batch(step)
        s = self.model.captions(*self.train.told(captions))
        v = self.model.images(self.train.features(images))
        return pair_loss(self.model.energy(s, v), self.margin)

    def evaluate(self) -> dict[str, float]:
        """`test_…` as `ranking.scores`; of validation the recalls of image retrieval alone, and
        `validation_missed`, 100 less their mean, as the paper selects; with `examples` also
        `train_error`, the percentage of their captions whose image is not first."""
        found = {}
        for name, part in self.parts.items():
            scores = ranking.scores(self.energies(part))
            if name == "test":
                found |= {f"test_{metric}": value for metric, value in scores.items()}
                continue
            recalls = {f"{name}_image_r{k}": scores[f"image_r{k}"] for k in ranking.KS}
            found |= {**recalls, f"{name}_missed": 100 - sum(recalls.values()) / len(recalls)}
        if "train" in self.parts:
            found["train_error"] = 100 - found["train_image_r1"]
        return found

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        """`missed_of_words`: what is missed on the test fold at the end, as a share of what the bag
        of words misses. `ordered`, for scenes: the percentage of captions that lie, as they should,
        above one that says the same and more: less is violated than the other way round."""
        self.model.eval()
        test = self.parts["test"]
        trivial = ranking.bag_of_words(self.train, test, len(self.data.vocabulary) + 2)
        missed = ranking.scores(self.energies(test))["missed"]
        found = {"missed_of_words": missed / ranking.scores(trivial)["missed"]}
        if self.data.pairs is not None:
            above, below = (
                self.embedded(self.data.pairs.to(test.words.device))
                .view(-1, 2, self.model.image.out_features)
                .unbind(1)
            )
            forth, back = ((one - two).relu().square().sum(1)
                           for one, two in ((above, below), (below, above)))  # fmt: skip
            found["ordered"] = 100 * float((forth < back).double().mean())
        return found

    @torch.no_grad()
    def embedded(self, part: Part) -> Float[Tensor, "m d"]:
        """All captions of a part, read in chunks of like length."""
        order = part.lengths.argsort(stable=True)
        found = torch.cat([self.model.captions(*part.told(rows)) for rows in order.split(CHUNK)])
        return torch.empty_like(found).index_copy_(0, order, found)

    @torch.no_grad()
    def energies(self, part: Part) -> Float[Tensor, "m n"]:
        """Return the violation of each caption and image of a part."""
        images = self.model.images(part.features())
        return self.model.energy(self.embedded(part), images, many=True)
