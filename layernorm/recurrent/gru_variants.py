"""The layer-normalized GRU in three other forms that are in use, over whole sequences.

`LayerNormGRU` normalizes each term of the gates over 2H and each term of the candidate over H.
These three normalize, of the 3H summed inputs in torch's order r, z, n:

    variant    norms                                      candidate
    joint      a = LN(W_h h + W_x x), over 3H             n = tanh(b_n + r a_n)
    stacked    a = u + v, u = LN(W_h h), v = LN(W_x x),   n = tanh(b_n + v_n + r u_n)
               over 3H each
    per_gate   a_r = LN(W_hr h + W_xr x), over H,         n = tanh(b_n + LN(W_xn x + r W_hn h))
               and a_z likewise

    r = sigmoid(a_r + b_r),   z = sigmoid(a_z + b_z),   h' = (1 - z) n + z h

`joint` is DreamerV3's (2023, its nets.py): the reset gate multiplies both terms of the candidate.
Its update gate passes the new state, sigmoid(u - 1); here z keeps the old one, z = sigmoid(1 - u):
the signs of that gate's gains and biases are changed, and b_z starts at 1 (`update_bias`).
`stacked` is haste's LayerNormGRU. `per_gate` is NormGRUCell of github.com/jurgisp/pydreamer
(pydreamer/models/rnn.py), whose other cell, NormGRUCellLateReset, is `joint`. It alone sums both
terms of the candidate before their norm, the recurrent one behind the reset gate.

The definition computes all; there is no fused path.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layernorm import _validation, functional
from layernorm._validation import checked
from layernorm.recurrent import checks, definition, layers
from layernorm.recurrent.cells import _Cell
from layernorm.recurrent.definition import GRUWeights
from layernorm.recurrent.layers import Layer
from layernorm.recurrent.parameters import GRUParameters


def joint(x: Tensor, h: Tensor, w: GRUWeights, eps: float) -> Tensor:
    """One step: one norm on the sum of both terms, the reset gate on the candidate's whole sum."""
    summed = functional.layer_norm(h @ w.w_hh.T + x @ w.w_ih.T, w.w_hh.shape[:1], *w.ln_hh, eps)
    r, z, n = summed.chunk(3, dim=-1)
    b_r, b_z, b_n = w.b.chunk(3)
    n = torch.tanh(b_n + torch.sigmoid(r + b_r) * n)
    z = torch.sigmoid(z + b_z)
    return (1 - z) * n + z * h


def stacked(x: Tensor, h: Tensor, w: GRUWeights, eps: float) -> Tensor:
    """One step: a norm for each term, over the summed inputs of gates and candidate together."""
    term_h = functional.layer_norm(h @ w.w_hh.T, w.w_hh.shape[:1], *w.ln_hh, eps)
    term_x = functional.layer_norm(x @ w.w_ih.T, w.w_hh.shape[:1], *w.ln_ih, eps) + w.b
    (r_h, z_h, n_h), (r_x, z_x, n_x) = term_h.chunk(3, dim=-1), term_x.chunk(3, dim=-1)
    n = torch.tanh(n_x + torch.sigmoid(r_h + r_x) * n_h)
    z = torch.sigmoid(z_h + z_x)
    return (1 - z) * n + z * h


def per_gate(x: Tensor, h: Tensor, w: GRUWeights, eps: float) -> Tensor:
    """One step: r, z and the candidate each with a norm of their own, over both terms' sum."""
    (r_h, z_h, n_h), (r_x, z_x, n_x) = (h @ w.w_hh.T).chunk(3, -1), (x @ w.w_ih.T).chunk(3, -1)
    gains, biases, b = (p.chunk(3) for p in (*w.ln_hh, w.b))

    def norm(a: Tensor, k: int) -> Tensor:
        return functional.layer_norm(a, h.shape[-1:], gains[k], biases[k], eps) + b[k]

    r, z = torch.sigmoid(norm(r_h + r_x, 0)), torch.sigmoid(norm(z_h + z_x, 1))
    n = torch.tanh(norm(n_x + r * n_h, 2))
    return (1 - z) * n + z * h


VARIANTS: dict[str, Callable[[Tensor, Tensor, GRUWeights, float], Tensor]] = {
    "joint": joint,
    "stacked": stacked,
    "per_gate": per_gate,
}


def _named(variant: str) -> None:
    if variant == "paper":
        raise ValueError(f'variant "paper" is LayerNormGRU; those here are {", ".join(VARIANTS)}')
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")


def _sequences(x, batch_sizes, h0, weights, eps, variant, reverse) -> None:
    _named(variant)
    if variant != "stacked":
        if weights.ln_ih is not None:
            raise ValueError(f'weights.ln_ih must be None: variant "{variant}" has no such norm')
        weights = weights._replace(ln_ih=checks._stand_in(weights.w_hh))
    checks.gru(x, batch_sizes, h0, weights, eps, reverse)


@checked(_sequences)
def gru(
    x: Float[Tensor, "n i"],
    batch_sizes: Int[Tensor, " t"] | None,
    h0: Float[Tensor, "batch h"],
    weights: GRUWeights,
    eps: float = 1e-5,
    variant: str = "joint",
    reverse: bool = False,
) -> tuple[Float[Tensor, "n h"], Float[Tensor, "batch h"]]:
    """`definition.gru` with another variant's step.

    Args: as `definition.gru`, and variant, "joint", "stacked" or "per_gate". ln_hh and ln_ih are
    pairs of (3H,), three norms' side by side for `per_gate`; only `stacked` has ln_ih, else None.

    Returns: y (N, H), the states in x's order; the last state (B, H) of each sequence.

    Raises: as `definition.lstm`.

    Source: the module's first lines.

    >>> six = torch.ones(6), torch.zeros(6)
    >>> w = GRUWeights(torch.ones(6, 1), torch.eye(2).repeat(3, 1), None, None, six)
    >>> y, h = gru(torch.ones(3, 1), torch.tensor([2, 1]), torch.zeros(2, 2), w)
    >>> torch.equal(y[1:], h.flip(0))  # the second sequence ends at the first step
    True
    """
    weights = weights._replace(b=definition._or_zeros(weights.b, weights.w_ih))
    step = VARIANTS[variant]
    return definition._over_time(
        lambda x, h: (step(x, h, weights, eps),), x, batch_sizes, (h0,), reverse
    )


class _Parameters(GRUParameters):
    def __init__(
        self, input_size, hidden_size, bias, eps, variant: str, update_bias: float
    ) -> None:
        super().__init__(input_size, hidden_size, bias, eps)
        _named(variant)
        _validation._finite("update_bias", update_bias)
        if update_bias and not bias:
            raise ValueError(f"update_bias={update_bias} needs bias=True: it is where b starts")
        self.variant = variant
        self.update_bias = update_bias

    def _norms(self) -> dict[str, int]:
        norms = super()._norms()
        return norms if self.variant == "stacked" else {"ln_hh": norms["ln_hh"]}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights anew; gains 1, biases 0 but the update gate's part of b, update_bias;
        learned initial states 0."""
        super().reset_parameters()
        for name, parameter in self._named():
            if name.startswith("bias_ih"):
                parameter[self.hidden_size : 2 * self.hidden_size] = self.update_bias

    def _printed(self, **defaults) -> str:
        return super()._printed(**defaults, update_bias=0)


class LayerNormGRUVariant(Layer, _Parameters):
    """The layer-normalized GRU in another form than the paper's, called as `torch.nn.GRU`.

        (a_r, a_z, a_n) = LN(W_h h + W_x x),   r = sigmoid(a_r + b_r),   z = sigmoid(a_z + b_z)
        n = tanh(b_n + r a_n),   h' = (1 - z) n + z h

    All of `torch.nn.GRU`'s arguments, in its order, and eps, backend and learn_initial_state of
    `LayerNormLSTM`; bias=False leaves out b, not the norms' own. There is no fused path.

    Args:
        variant: "joint" is what stands above, DreamerV3's; "stacked" is haste's LayerNormGRU,
            "per_gate" pydreamer's; see `layernorm.recurrent.gru_variants`.
        update_bias: where the update gate's part of b starts. z keeps the old state: DreamerV3,
            whose gate passes the new one with bias -1, is 1 here (and eps=1e-3).

    Raises: as `LayerNormLSTM`.

    Source: `layernorm.recurrent.gru_variants`.

    >>> gru = LayerNormGRUVariant(3, 5, eps=1e-3, update_bias=1.0)
    >>> output, h_n = gru(torch.zeros(7, 4, 3))
    >>> output.shape, torch.equal(output[-1], h_n[0])
    (torch.Size([7, 4, 5]), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
        backend: str = "auto",
        learn_initial_state: bool = False,
        variant: str = "joint",
        update_bias: float = 0.0,
    ) -> None:
        _Parameters.__init__(self, input_size, hidden_size, bias, eps, variant, update_bias)
        options = num_layers, batch_first, dropout, bidirectional
        self._build(*options, device, dtype, backend, learn_initial_state)

    def _sequence(self, x, batch_sizes, states, weights, reverse: bool):
        layers._computer(self, f"{self.variant} gru", x)  # which refuses backend "fused"
        return gru(x, batch_sizes, *states, weights, self.eps, self.variant, reverse)


class LayerNormGRUVariantCell(_Cell, _Parameters):
    """One step of `LayerNormGRUVariant`, called as `torch.nn.GRUCell`.

    All of `torch.nn.GRUCell`'s arguments, in its order, and eps, variant and update_bias of
    `LayerNormGRUVariant`.

    Call with input (B, I) or (I,) and optionally h, (B, H) or (H,); returns the new h.

    Raises: as `LayerNormLSTM`.

    Source: `layernorm.recurrent.gru_variants`.

    >>> LayerNormGRUVariantCell(3, 5, variant="stacked")
    LayerNormGRUVariantCell(3, 5, variant=stacked)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
        variant: str = "joint",
        update_bias: float = 0.0,
    ) -> None:
        _Parameters.__init__(self, input_size, hidden_size, bias, eps, variant, update_bias)
        self._create(input_size, "", device=device, dtype=dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, hx)[0]

    def _sequence(self, x: Tensor, h: Tensor) -> tuple[Tensor]:
        return gru(x, None, h, self._weights(""), self.eps, self.variant)[1:]
