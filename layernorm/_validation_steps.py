"""Checks of what users pass to one step of a recurrence: one function per step, named like it; as
`layernorm._validation`."""

from torch import Tensor

from layernorm._validation import _eps, _floating, _matching, _parameter, _shape


def ln_rnn_step(x, h, w_ih, w_hh, ln, eps, nonlinearity):
    _step(x, h, w_ih, w_hh, gates=1)
    _pair("ln", ln, x, (h.shape[-1],))
    _eps(eps)
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f'nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')


def ln_lstm_step(x, h, c, w_ih, w_hh, b, ln_ih, ln_hh, ln_c, eps, w_hr=None):
    hidden = _projected(c, w_hr)
    _step(x, h, w_ih, w_hh, gates=4, hidden=hidden)
    hidden = hidden or h.shape[-1]
    same = "the shape of h" if w_hr is None else "the batch of h, hidden size"
    _parameter("c", c, x, (*h.shape[:-1], hidden), same, mixed=False)
    if w_hr is not None:
        _parameter("w_hr", w_hr, x, (h.shape[-1], hidden), "projected, hidden", mixed=False)
    _parameter("b", b, x, (4 * hidden,), "4 * hidden size", mixed=False)
    _pair("ln_ih", ln_ih, x, (4 * hidden,))
    _pair("ln_hh", ln_hh, x, (4 * hidden,))
    _pair("ln_c", ln_c, x, (hidden,))
    _eps(eps)


def ln_gru_step(x, h, w_ih, w_hh, b, ln_ih, ln_hh, eps):
    _step(x, h, w_ih, w_hh, gates=3)
    _parameter("b", b, x, (3 * h.shape[-1],), "3 * hidden size", mixed=False)
    _pair("ln_ih", ln_ih, x, (3 * h.shape[-1],))
    _pair("ln_hh", ln_hh, x, (3 * h.shape[-1],))
    _eps(eps)


def _projected(c, w_hr) -> int | None:
    """The hidden size where a projection makes it another than that of h."""
    if w_hr is None:
        return None
    _floating("c", c)
    if c.dim() < 1:
        raise ValueError(f"c must have shape (*batch, hidden), got {_shape(c)}")
    return c.shape[-1]


def _step(x, h, w_ih, w_hh, gates: int, hidden: int | None = None) -> None:
    for name, t in (("x", x), ("h", h), ("w_ih", w_ih), ("w_hh", w_hh)):
        _floating(name, t)
    if x.dim() < 1 or h.dim() < 1 or x.shape[:-1] != h.shape[:-1]:
        raise ValueError(
            "x (*batch, inputs) and h (*batch, hidden) must agree in the batch, got "
            f"{_shape(x)} and {_shape(h)}"
        )
    _matching("h", h, x, mixed=False)
    rows = gates * (hidden or h.shape[-1])
    stacked = "hidden" if gates == 1 else f"{gates} * hidden"
    for name, w, source in (("w_ih", w_ih, x), ("w_hh", w_hh, h)):
        expected = (rows, source.shape[-1])
        recurrent = "hidden" if hidden is None else "projected"
        meaning = f"({stacked}, {'inputs' if source is x else recurrent})"
        _parameter(name, w, x, expected, meaning, mixed=False)


def _pair(name: str, ln, x: Tensor, shape: tuple) -> None:
    if not isinstance(ln, tuple | list) or len(ln) != 2:
        raise TypeError(f"{name} must be a pair (gain, bias) of tensors, got {type(ln).__name__}")
    for part, p in zip(("gain", "bias"), ln, strict=True):
        _parameter(f"{name}'s {part}", p, x, shape, "the size it normalizes", mixed=False)
