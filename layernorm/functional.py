"""The definitions, as short as their equations. Everything faster is checked against them.

Symbols. The paper (Ba, Kiros, Hinton 2016, arXiv:1607.06450) writes gain g, bias b, mean mu,
standard deviation sigma over the H units of a layer; PyTorch's names for gain and bias are `weight`
and `bias`. The paper has no eps; like PyTorch, every definition here adds it to the variance,
inside the root. All variances divide by the number of values (biased), as in eq. (3).

Rounding. Rows are centered twice, so that constant rows and large means are exact up to rounding
(`_moments`). Where a sum of squares exceeds the range of the type, the result is NaN.

Half precision (float16, bfloat16): statistics and the affine map are computed in float32 and the
result is rounded once, to the type of `x`.

Arguments are checked before anything is computed, by the `checked` line above each definition
(`layernorm._validation`): its messages name the invariant, the value received and the fix.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from layernorm import _validation, _validation_steps
from layernorm._validation import checked


@checked(_validation.layer_norm)
def layer_norm(
    x: Float[Tensor, "*shape"],
    normalized_shape: Sequence[int],
    weight: Float[Tensor, "*normalized"] | None = None,
    bias: Float[Tensor, "*normalized"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*shape"]:
    r"""Layer normalization: each example by its own mean and variance over the layer's units.

        y = g (x - mu) / sqrt(sigma^2 + eps) + b,   mu = mean(x),   sigma^2 = mean((x - mu)^2)

    Args:
        x: (\*batch, \*normalized_shape).
        normalized_shape: the trailing dimensions to average over.
        weight: gain g, of shape normalized_shape; None means 1.
        bias: b, of shape normalized_shape; None means 0.
        eps: added to the variance, >= 0.

    Raises: ValueError if normalized_shape is not the end of x's shape, a parameter's shape is
    another, or eps is negative or not finite; TypeError for anything but floating-point tensors.

    Source: eq. (3) of the paper, with the gain and bias of eq. (15).

    >>> x = torch.tensor([[1.0, 3.0], [10.0, 30.0]])
    >>> layer_norm(x, (2,), eps=0.0)
    tensor([[-1.,  1.],
            [-1.,  1.]])
    """
    a = _statistics_type(x)
    _, centered, var = _moments(a, _trailing(normalized_shape))
    return _affine(centered / torch.sqrt(var + eps), weight, bias).to(x.dtype)


@checked(_validation.rms_norm)
def rms_norm(
    x: Float[Tensor, "*shape"],
    normalized_shape: Sequence[int],
    weight: Float[Tensor, "*normalized"] | None = None,
    eps: float | None = None,
) -> Float[Tensor, "*shape"]:
    r"""Root-mean-square normalization: layer normalization that does not re-center.

        y = g x / sqrt(mean(x^2) + eps)

    Args:
        x: (\*batch, \*normalized_shape).
        normalized_shape: the trailing dimensions to average over.
        weight: gain g, of shape normalized_shape; None means 1.
        eps: added to the mean square, >= 0; None means torch's default, the machine epsilon of the
            type in which the statistics are computed.

    Raises: ValueError and TypeError as `layer_norm`.

    Source: Zhang and Sennrich 2019, arXiv:1910.07467, eq. (4).

    >>> rms_norm(torch.tensor([[1.0, 7.0]]), (2,), eps=0.0)
    tensor([[0.2000, 1.4000]])
    """
    a = _statistics_type(x)
    eps = torch.finfo(a.dtype).eps if eps is None else eps
    mean_square = _in_range(a.square().mean(_trailing(normalized_shape), keepdim=True))
    return _affine(a / torch.sqrt(mean_square + eps), weight, None).to(x.dtype)


@checked(_validation.group_norm)
def group_norm(
    x: Float[Tensor, "n c *spatial"],
    num_groups: int,
    weight: Float[Tensor, " c"] | None = None,
    bias: Float[Tensor, " c"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "n c *spatial"]:
    r"""Group normalization: each group of neighboring channels of each example separately.

        y = g_c (x - mu) / sqrt(sigma^2 + eps) + b_c,   mu, sigma over (C / num_groups, \*spatial)

    A group of a single value gives the bias, as layer normalization does at H = 1.

    Args:
        x: (N, C, \*spatial).
        num_groups: a divisor of C.
        weight: gain per channel, (C,); None means 1.
        bias: bias per channel, (C,); None means 0.
        eps: added to the variance, >= 0.

    Raises: ValueError if num_groups does not divide C, and as `layer_norm`.

    Source: Wu and He 2018, arXiv:1803.08494.

    >>> group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    tensor([[-1.,  1., -1.,  1.]])
    """
    a = _statistics_type(x).unflatten(1, (num_groups, x.shape[1] // num_groups))
    _, centered, var = _moments(a, tuple(range(2, a.dim())))
    y = (centered / torch.sqrt(var + eps)).flatten(1, 2)
    return _affine(y, _per_channel(weight, x), _per_channel(bias, x)).to(x.dtype)


@checked(_validation.instance_norm)
def instance_norm(
    x: Float[Tensor, "n c *spatial"],
    running_mean: Float[Tensor, " c"] | None = None,
    running_var: Float[Tensor, " c"] | None = None,
    weight: Float[Tensor, " c"] | None = None,
    bias: Float[Tensor, " c"] | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Float[Tensor, "n c *spatial"]:
    r"""Instance normalization: each channel of each example separately, over the positions.

        y = g_c (x - mu) / sqrt(sigma^2 + eps) + b_c,   mu, sigma over the spatial dimensions

    Args:
        x: (N, C, \*spatial), at least one spatial dimension and more than one position.
        running_mean, running_var: (C,) each; with `use_input_stats` they are updated in place by
            the batch's average mean and unbiased variance, without it they replace mu, sigma^2.
        weight, bias: per channel, (C,); None means 1 and 0.
        use_input_stats: normalize by the input's own statistics.
        momentum: share of the new value in the running statistics.
        eps: added to the variance, >= 0.

    Raises: ValueError for a single position, for missing running statistics where they are needed,
    and as `layer_norm`.

    Source: Ulyanov, Vedaldi and Lempitsky 2016, arXiv:1607.08022.

    >>> instance_norm(torch.tensor([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)
    tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """
    a = _statistics_type(x)
    if use_input_stats:
        mu, centered, var = _moments(a, tuple(range(2, x.dim())))
        n = x.shape[2:].numel()
        if x.numel():
            _update(running_mean, mu.mean(0).flatten(), momentum)
            _update(running_var, var.mean(0).flatten() * n / (n - 1), momentum)
    else:
        centered, var = a - _per_channel(running_mean, x), _per_channel(running_var, x)
    y = centered / torch.sqrt(var + eps)
    return _affine(y, _per_channel(weight, x), _per_channel(bias, x)).to(x.dtype)


@checked(_validation.batch_norm)
def batch_norm(
    x: Float[Tensor, "n c *spatial"],
    running_mean: Float[Tensor, " c"] | None,
    running_var: Float[Tensor, " c"] | None,
    weight: Float[Tensor, " c"] | None = None,
    bias: Float[Tensor, " c"] | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    mask: Bool[Tensor, "n *spatial"] | None = None,
) -> Float[Tensor, "n c *spatial"]:
    r"""Batch normalization: each channel by its mean and variance over examples and positions.

        y = g_c (x - mu_c) / sqrt(sigma_c^2 + eps) + b_c

    In training mu, sigma^2 are the batch's (sigma^2 biased) and the running statistics are updated
    in place, running <- (1 - momentum) running + momentum new, with the unbiased variance, as in
    torch. Otherwise mu, sigma^2 are the running statistics.

    With a mask, statistics are taken over valid positions only, and the output is 0 at the
    others. Values at those, NaN and infinity included, affect neither the statistics nor the other
    outputs nor any gradient, and the gradient of x is 0 there.

    Args:
        x: (N, C, \*spatial); in training more than one (valid) value per channel.
        running_mean, running_var: (C,) each, or both None in training.
        weight, bias: per channel, (C,); None means 1 and 0.
        training: normalize by the batch's statistics.
        momentum: share of the new value in the running statistics.
        eps: added to the variance, >= 0.
        mask: (N, \*spatial), True where x is valid; in training it needs at least two valid
            positions (its values cannot be checked while torch.compile or torch.export trace).

    Raises: ValueError in training with a single (valid) value per channel or a mask without a valid
    position, for missing running statistics where they are needed, and as `layer_norm`.

    Source: eq. (2) of the paper; Ioffe and Szegedy 2015, arXiv:1502.03167.

    >>> x = torch.tensor([[1.0], [3.0], [99.0]])
    >>> batch_norm(x, None, None, training=True, eps=0.0, mask=torch.tensor([True, True, False]))
    tensor([[-1.],
            [ 1.],
            [ 0.]])
    """
    everywhere = (x.shape[0], 1, *x.shape[2:])
    valid = x.new_ones(everywhere, dtype=torch.bool) if mask is None else mask.unsqueeze(1)
    a = torch.where(valid, _statistics_type(x), 0)
    if training:
        n = valid.sum()
        mu, centered, var = _moments(a, (0, *range(2, x.dim())), valid)
        if x.numel():
            _update(running_mean, mu.flatten(), momentum)
            _update(running_var, var.flatten() * n / (n - 1), momentum)
    else:
        centered, var = a - _per_channel(running_mean, x), _per_channel(running_var, x)
    y = centered / torch.sqrt(var + eps)
    y = _affine(y, _per_channel(weight, x), _per_channel(bias, x))
    return torch.where(valid, y, 0).to(x.dtype)


@checked(_validation.weight_norm)
def weight_norm(
    v: Float[Tensor, "*shape"], g: Float[Tensor, "*norms"], dim: int | None = 0
) -> Float[Tensor, "*shape"]:
    r"""Weight normalization: a weight as its length g times the direction of v.

        w = g v / |v|

    Args:
        v: the direction, unnormalized.
        g: the lengths. With `dim` an int, |v| is taken over all other dimensions and g has v's
            shape with these set to 1: (out, 1) for a linear weight (out, in) and dim 0. With dim
            None (or -1, as in torch) |v| is one norm over all of v and g has shape ().
        dim: the dimension that keeps its own norms.

    Raises: ValueError if dim is not a dimension of v or g has another shape; TypeError for anything
    but floating-point tensors.

    Source: Salimans and Kingma 2016, arXiv:1602.07868, eq. (2); eq. (5) of the paper writes it as
    a normalization with mu = 0, sigma = |w|.

    >>> weight_norm(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[10.0], [1.0]]))
    tensor([[6., 8.],
            [0., 1.]])
    """
    a = _statistics_type(v)
    whole = dim is None or dim == -1
    others = [d for d in range(v.dim()) if whole or d != dim % v.dim()]
    norm = _in_range(a.square().sum(others, keepdim=not whole)).sqrt()
    return (g * a / norm).to(v.dtype)


@checked(_validation.dynamic_tanh)
def dynamic_tanh(
    x: Float[Tensor, "*shape"],
    alpha: Float[Tensor, ""] | float,
    weight: Float[Tensor, "*features"] | None = None,
    bias: Float[Tensor, "*features"] | None = None,
) -> Float[Tensor, "*shape"]:
    r"""Dynamic tanh (DyT): an element-wise curve in the place of a norm, without statistics.

        y = g tanh(alpha x) + b

    Args:
        x: (\*batch, \*features).
        alpha: one number for all units.
        weight, bias: g and b, of the shape of x's last dimensions; None means 1 and 0.

    Raises: ValueError if alpha is not one number, or a parameter's shape is not the end of x's
    shape; TypeError for anything but floating-point tensors.

    Source: Zhu et al. 2025, arXiv:2503.10622.

    >>> dynamic_tanh(torch.tensor([0.0, 100.0]), 0.5, weight=torch.tensor([3.0, 2.0]))
    tensor([0., 2.])
    """
    a = _statistics_type(x)
    return _affine(torch.tanh(alpha * a), weight, bias).to(x.dtype)


@checked(_validation.dynamic_erf)
def dynamic_erf(
    x: Float[Tensor, "*shape"],
    alpha: Float[Tensor, ""] | float,
    shift: Float[Tensor, ""] | float = 0.0,
    weight: Float[Tensor, "*features"] | None = None,
    bias: Float[Tensor, "*features"] | None = None,
) -> Float[Tensor, "*shape"]:
    r"""Dynamic erf (Derf): an element-wise curve in the place of a norm, without statistics.

        y = g erf(alpha x + s) + b

    Args:
        x: (\*batch, \*features).
        alpha, shift: alpha and s, one number each for all units.
        weight, bias: g and b, of the shape of x's last dimensions; None means 1 and 0.

    Raises: as `dynamic_tanh`.

    Source: Chen et al. 2025, arXiv:2512.10938.

    >>> dynamic_erf(torch.tensor([0.0, 100.0]), 0.5, weight=torch.tensor([3.0, 2.0]))
    tensor([0., 2.])
    """
    a = _statistics_type(x)
    return _affine(torch.erf(alpha * a + shift), weight, bias).to(x.dtype)


@checked(_validation_steps.ln_rnn_step)
def ln_rnn_step(
    x: Float[Tensor, "*batch i"],
    h: Float[Tensor, "*batch h"],
    w_ih: Float[Tensor, "h i"],
    w_hh: Float[Tensor, "h h"],
    ln: tuple[Float[Tensor, " h"], Float[Tensor, " h"]],
    eps: float = 1e-5,
    nonlinearity: str = "tanh",
) -> Float[Tensor, "*batch h"]:
    r"""One step of the layer-normalized RNN: the sum of both terms is normalized once.

        a = W_hh h + W_xh x,   h' = f(LN(a; g, b))

    Args:
        x: input, (\*batch, I).  h: state, (\*batch, H).
        w_ih: (H, I).  w_hh: (H, H).
        ln: gain g and bias b, (H,) each; the same at every time step.
        eps: added to the variance, >= 0.
        nonlinearity: f, "tanh" or "relu".

    Raises: ValueError where shapes do not fit together; TypeError where number types differ.

    Source: eq. (4) of the paper.

    >>> x, h = torch.tensor([3.0]), torch.zeros(2)
    >>> w_ih, gain_bias = torch.tensor([[1.0], [2.0]]), (torch.ones(2), torch.tensor([1.0, -1.0]))
    >>> ln_rnn_step(x, h, w_ih, torch.eye(2), gain_bias, eps=0.0)
    tensor([0., 0.])
    """
    f = torch.tanh if nonlinearity == "tanh" else torch.relu
    a = h @ w_hh.T + x @ w_ih.T
    return f(layer_norm(a, h.shape[-1:], *ln, eps))


@checked(_validation_steps.ln_lstm_step)
def ln_lstm_step(
    x: Float[Tensor, "*batch i"],
    h: Float[Tensor, "*batch p"],
    c: Float[Tensor, "*batch h"],
    w_ih: Float[Tensor, "4*h i"],
    w_hh: Float[Tensor, "4*h p"],
    b: Float[Tensor, " 4*h"],
    ln_ih: tuple[Float[Tensor, " 4*h"], Float[Tensor, " 4*h"]],
    ln_hh: tuple[Float[Tensor, " 4*h"], Float[Tensor, " 4*h"]],
    ln_c: tuple[Float[Tensor, " h"], Float[Tensor, " h"]],
    eps: float = 1e-5,
    w_hr: Float[Tensor, "p h"] | None = None,
) -> tuple[Float[Tensor, "*batch p"], Float[Tensor, "*batch h"]]:
    r"""One step of the layer-normalized LSTM.

        (i, f, g, o) = LN(W_h h) + LN(W_x x) + b        each LN over the stacked 4H summed inputs
        c' = sigmoid(f) c + sigmoid(i) tanh(g)          the cell is carried un-normalized
        h' = sigmoid(o) tanh(LN(c'))                    times W_hr, if it is given

    The gates stand in torch's order (the paper stacks f, i, o, g). b stands outside the norms, as
    in eq. (20); the authors' code also adds one inside, before LN of the input term.

    Args:
        x: input, (\*batch, I).  h: state, (\*batch, P).  c: cell, (\*batch, H).
        w_ih: (4H, I).  w_hh: (4H, P).  b: (4H,).
        ln_ih, ln_hh, ln_c: gain and bias of LN(W_x x), LN(W_h h), (4H,) each, and LN(c'), (H,).
        eps: added to the variances, >= 0.
        w_hr: (P, H), the projection of `torch.nn.LSTM`'s proj_size; None: P = H.

    Returns: (h', c').

    Raises: ValueError where shapes do not fit together; TypeError where number types differ.

    Source: eqs. (20), (21) and (22) of the paper.

    >>> x, h, c = torch.ones(1), torch.zeros(2), torch.tensor([1.0, 3.0])
    >>> four, two = (torch.zeros(8), torch.zeros(8)), (torch.ones(2), torch.zeros(2))
    >>> b = torch.zeros(8)
    >>> ln_lstm_step(x, h, c, torch.ones(8, 1), torch.ones(8, 2), b, four, four, two)
    (tensor([-0.3808,  0.3808]), tensor([0.5000, 1.5000]))
    """
    stacked = w_hh.shape[:1]
    gates = (
        layer_norm(h @ w_hh.T, stacked, *ln_hh, eps)
        + layer_norm(x @ w_ih.T, stacked, *ln_ih, eps)
        + b
    )
    return _lstm_update(gates, c, ln_c, eps, w_hr)


@checked(_validation_steps.ln_gru_step)
def ln_gru_step(
    x: Float[Tensor, "*batch i"],
    h: Float[Tensor, "*batch h"],
    w_ih: Float[Tensor, "3*h i"],
    w_hh: Float[Tensor, "3*h h"],
    b: Float[Tensor, " 3*h"],
    ln_ih: tuple[Float[Tensor, " 3*h"], Float[Tensor, " 3*h"]],
    ln_hh: tuple[Float[Tensor, " 3*h"], Float[Tensor, " 3*h"]],
    eps: float = 1e-5,
) -> Float[Tensor, "*batch h"]:
    r"""One step of the layer-normalized GRU.

        (r, z) = LN(W_h h) + LN(W_x x) + b_rz           each LN over the stacked 2H summed inputs
        n = tanh(LN(W x) + b_n + sigmoid(r) LN(U h))    each LN over H; reset acts after LN
        h' = (1 - sigmoid(z)) n + sigmoid(z) h

    z keeps the old state, as in torch and in the authors' code; the paper's eq. (28) has it the
    other way round, h' = (1 - sigmoid(z)) h + sigmoid(z) n, which is the same cell with the sign
    of z's summed input changed. b stands outside the norms (the paper's equations have only the
    norms' own biases; the authors' code adds one inside, before LN of the input term). b_n stands
    outside the product with the reset gate; ln_hh's bias of n stands inside, like torch's b_hn.

    Args:
        x: input, (\*batch, I).  h: state, (\*batch, H).
        w_ih: (3H, I).  w_hh: (3H, H).  b: (3H,); stacked in torch's order r, z, n.
        ln_ih, ln_hh: gain and bias, (3H,) each: the first 2H belong to the norms of the gates, the
            last H to those of the candidate n.
        eps: added to the variances, >= 0.

    Raises: ValueError where shapes do not fit together; TypeError where number types differ.

    Source: eqs. (26), (27) and (28) of the paper.

    >>> x, h, zero = torch.ones(1), torch.tensor([1.0, 3.0]), torch.zeros(6)
    >>> ln_gru_step(x, h, torch.ones(6, 1), torch.ones(6, 2), zero, (zero, zero), (zero, zero))
    tensor([0.5000, 1.5000])
    """
    both = 2 * h.shape[-1]

    def norms(a: Tensor, gain: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        gates = layer_norm(a[..., :both], (both,), gain[:both], bias[:both], eps)
        return gates, layer_norm(a[..., both:], h.shape[-1:], gain[both:], bias[both:], eps)

    gates_h, n_h = norms(h @ w_hh.T, *ln_hh)
    gates_x, n_x = norms(x @ w_ih.T, *ln_ih)
    r, z = (gates_h + gates_x + b[:both]).chunk(2, dim=-1)
    n = torch.tanh(n_x + b[both:] + torch.sigmoid(r) * n_h)
    return (1 - torch.sigmoid(z)) * n + torch.sigmoid(z) * h


def _lstm_update(
    gates: Tensor, c: Tensor, ln_c: tuple[Tensor, Tensor], eps: float, w_hr: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(h', c') from the gates' summed inputs and c: eqs. (21) and (22), then the projection."""
    i, f, g, o = gates.chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(layer_norm(c, c.shape[-1:], *ln_c, eps))
    return h if w_hr is None else h @ w_hr.T, c


def _statistics_type(x: Tensor) -> Tensor:
    """Half precision has too few digits (and float16 too small a range) for means and squares."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _trailing(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def _moments(
    a: Tensor, dims: tuple[int, ...], valid: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """mu, a - mu and sigma^2, over the valid values.

    The computed mean is off by its rounding, which may exceed the deviations: of a constant row, of
    a mean of 1e8. The mean of the computed deviations is this error, and is subtracted as well.
    Exactly computed it is 0 for every a, so it has no gradient.
    """

    def mean(t: Tensor) -> Tensor:
        if valid is None:
            return t.mean(dims, keepdim=True)
        return torch.where(valid, t, 0).sum(dims, keepdim=True) / valid.sum()

    mu = mean(a)
    centered = a - mu
    error = mean(centered).detach()
    centered = centered - error
    return mu + error, centered, _in_range(mean(centered.square()))


def _in_range(square: Tensor) -> Tensor:
    """NaN for squares that overflowed, since dividing by infinity would give zeros."""
    return square.masked_fill(square == torch.inf, torch.nan)


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _per_channel(p: Tensor | None, x: Tensor) -> Tensor | None:
    return None if p is None else p.view(-1, *[1] * (x.dim() - 2))


def _update(running: Tensor | None, new: Tensor, momentum: float) -> None:
    if running is not None:
        with torch.no_grad():
            running.copy_((1 - momentum) * running + momentum * new)
