r"""A small transformer that reads characters, with its norms where the options put them.

Every block adds to the residual stream x, first what attention F gives, then what the MLP gives:

$$ \text{pre: } x + F(\mathrm{LN}(x)) \qquad \text{post: } \mathrm{LN}(x + F(x)) \qquad
   \text{peri: } x + \mathrm{LN}(F(\mathrm{LN}(x))) $$

Where norms come first, a last one stands before the logits. Options change one thing each:
`layernorm_scaling` divides what block l's norms give by √l; `scaled` divides the matrices that
write to the stream by √(2L) at the start; `qk_norm` normalizes each head's queries and keys. The
norm is that of a row of `layernorm.methods`, method `none` has none.

Sources: Vaswani et al. 2017 (post); Xiong et al. 2020 (pre); Kim et al. 2025 (peri); Sun et al.
2025 (scaling by √l); Radford et al. 2019 (scaled start); Henry et al. 2020 (queries and keys).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layernorm.lab.data.characters import ALPHABET
from layernorm.methods import method

ALPHAS = ("dyt", "derf")  # methods whose start is an alpha


def norm(options, features: int) -> nn.Module:
    """The norm of a method, or its replacement."""
    if options.method == "none":
        return nn.Identity()
    made = method(options.method).norm(features)
    if options.method in ALPHAS:
        nn.init.constant_(made.alpha, options.alpha)
    return made


class Attention(nn.Module):
    """Causal attention with several heads: softmax(q kᵀ / √d) v, each position to earlier ones."""

    def __init__(self, options) -> None:
        super().__init__()
        self.heads = options.heads
        self.qkv = nn.Linear(options.hidden, 3 * options.hidden)
        self.out = nn.Linear(options.hidden, options.hidden)
        self.norm_q = self.norm_k = nn.Identity()
        if options.qk_norm:
            size = options.hidden // options.heads
            self.norm_q, self.norm_k = (norm(options, size) for _ in range(2))

    def heads_of(self, x: Float[Tensor, "n t d"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (n, heads, t, d / heads) each."""
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind()
        return self.norm_q(q), self.norm_k(k), v

    def logits(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n heads t t"]:
        """q kᵀ / √d, those of later positions -inf."""
        q, k, _ = self.heads_of(x)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        return scores.masked_fill(later, -torch.inf)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        y = F.scaled_dot_product_attention(*self.heads_of(x), is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Two layers with GELU between them, four times as wide as the stream."""

    def __init__(self, options) -> None:
        super().__init__()
        self.up = nn.Linear(options.hidden, 4 * options.hidden)
        self.out = nn.Linear(4 * options.hidden, options.hidden)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        return self.out(F.gelu(self.up(x)))


class Branch(nn.Module):
    """One term of the residual stream, F, with its norms: block `depth` counts from 1."""

    def __init__(self, options, f: nn.Module, depth: int) -> None:
        super().__init__()
        self.placement, self.f = options.placement, f
        self.norm = norm(options, options.hidden)
        self.norm_out = norm(options, options.hidden) if self.placement == "peri" else None
        self.scale = depth**-0.5 if options.layernorm_scaling else 1.0
        self.dropout = nn.Dropout(options.dropout)

    def input(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        """The values that F is given."""
        return x if self.placement == "post" else self.norm(x) * self.scale

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        y = self.f(self.input(x))
        if self.norm_out is not None:
            y = self.norm_out(y)
        x = x + self.dropout(y)
        return self.norm(x) if self.placement == "post" else x


class Transformer(nn.Module):
    """Character numbers (n, t) to the logits of the next ones (n, t, characters).

    All arms of a seed start from the same weights: Xavier's for matrices, biases 0, and embeddings
    of characters and positions whose sum has the standard deviation `embedding_std`.
    """

    def __init__(self, options) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), options.hidden)
        self.position = nn.Embedding(options.context, options.hidden)
        self.dropout = nn.Dropout(options.dropout)
        self.branches = nn.ModuleList(
            Branch(options, kind(options), depth + 1)
            for depth in range(options.depth)
            for kind in (Attention, MLP)
        )
        last = options.placement != "post"
        self.norm = norm(options, options.hidden) if last else nn.Identity()
        self.output = nn.Linear(options.hidden, len(ALPHABET), bias=False)
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=options.embedding_std / math.sqrt(2))
        for linear in (m for m in self.modules() if isinstance(m, nn.Linear)):
            nn.init.xavier_normal_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        if options.scaled:
            with torch.no_grad():
                for branch in self.branches:
                    branch.f.out.weight /= math.sqrt(len(self.branches))

    def embed(self, text: Int[Tensor, "n t"]) -> Float[Tensor, "n t d"]:
        places = torch.arange(text.shape[1], device=text.device)
        return self.dropout(self.embedding(text) + self.position(places))

    def stream(self, text: Int[Tensor, "n t"]) -> Iterator[Float[Tensor, "n t d"]]:
        """The residual stream: the embeddings, then after each branch."""
        x = self.embed(text)
        yield x
        for branch in self.branches:
            x = branch(x)
            yield x

    def forward(self, text: Int[Tensor, "n t"]) -> Float[Tensor, "n t characters"]:
        for x in self.stream(text):
            last = x
        return self.output(self.norm(last))


@torch.no_grad()
def rescale_(model: Transformer, text: Int[Tensor, "n t"]) -> None:
    """Scale the weights of a network without norms so that what each layer gives has unit variance.

    The control arm `rescaled`: queries, keys and values together, each MLP's first layer and the
    logits start with variance 1; what a branch adds to the stream with 1 / (2 depth), so that the
    stream's variance only doubles; each by one factor, biases being 0.
    """

    def unit_(linear: nn.Linear, x: Tensor, std: float = 1.0) -> None:
        linear.weight *= std / linear(x).std()

    x, share = model.embed(text), len(model.branches) ** -0.5
    for branch in model.branches:
        first = branch.f.qkv if isinstance(branch.f, Attention) else branch.f.up
        unit_(first, x)
        branch.f.out.weight *= share / branch.f(x).std()
        x = branch(x)
    unit_(model.output, x)
