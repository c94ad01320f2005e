"""The published formulas of the family, each with the place where it can be read."""

from __future__ import annotations

from collections.abc import Callable

from layernorm.lab.conform.form import Form


def _along(form: Form, *places: tuple[int, ...]) -> bool:
    """Tell whether gain and bias, where there are any, stand along one of these sets of axes."""
    return all(axes in ((), *places) for axes in (form.gain_axes, form.bias_axes))


def _last(form: Form) -> bool:
    """Statistics, gain and bias of the last axis."""
    last = (form.rank - 1,)
    return form.axes == last and _along(form, last)


def _layer(form: Form, correction: int = 0, offset: float = 0.0) -> bool:
    own = form.centered and form.power == 0.5 and 0 not in form.axes
    return own and (form.correction, form.offset) == (correction, offset)


def _root_mean_square(form: Form, offset: float = 0.0) -> bool:
    own = not form.centered and form.power == 0.5 and _last(form)
    return own and (form.correction, form.offset) == (0, offset)


def _inside(form: Form, *places: tuple[int, ...]) -> bool:
    """Epsilon under the root, gain and bias along one of these sets of axes."""
    return _layer(form) and form.place == "inside" and _along(form, *places)


def _whole(form: Form) -> bool:
    return form.rank > 2 and form.axes == tuple(range(1, form.rank))


_Rule = tuple[str, Callable[[Form], bool]]
PUBLISHED: tuple[_Rule, ...] = (
    (
        "layer normalization (Ba, Kiros and Hinton 2016, eq. 3), as in torch.nn.LayerNorm",
        lambda f: _layer(f) and _last(f) and f.place == "inside",
    ),
    (
        "layer normalization without epsilon, as the paper prints it (eq. 3)",
        lambda f: _layer(f) and _last(f) and f.place == "none",
    ),
    (
        "the Annotated Transformer's (Rush 2018): unbiased, epsilon added to the deviation",
        lambda f: _layer(f, correction=1) and _last(f) and f.place == "outside",
    ),
    (
        "burn's until 2024 (tracel-ai/burn#2185): epsilon added to the deviation",
        lambda f: _layer(f) and _last(f) and f.place == "outside",
    ),
    (
        "LBANN's until 2022 (LBANN/lbann#2024): the unbiased variance",
        lambda f: (
            _layer(f, correction=1)
            and f.place == "inside"
            and {*f.gain_axes, *f.bias_axes} <= {*f.axes}
        ),
    ),
    (
        "layer normalization with gain 1 + g (NVIDIA NeMo's LayerNorm1P)",
        lambda f: _layer(f, offset=1.0) and _last(f) and f.place == "inside",
    ),
    (
        "layer normalization over the channels of images (ConvNeXt's channels_first)",
        lambda f: _inside(f, (1,)) and f.axes == (1,) and f.rank == 4,
    ),
    (
        "layer normalization over channels and positions (group normalization with one group)",
        lambda f: _inside(f, (1,), (f.rank - 1,)) and _whole(f),
    ),
    (
        "layer normalization over several axes, gain and bias as well, as in torch.nn.LayerNorm",
        lambda f: _inside(f, f.axes) and _whole(f),
    ),
    (
        "instance normalization (Ulyanov, Vedaldi and Lempitsky 2016)",
        lambda f: (
            _inside(f, (1,))
            and f.axes == tuple(range(2, f.rank))
            and (f.rank > 3 or (1,) in (f.gain_axes, f.bias_axes))
        ),
    ),
    (
        "batch normalization (Ioffe and Szegedy 2015)",
        lambda f: (
            (f.centered, f.correction, f.offset, f.place) == (True, 0, 0.0, "inside")
            and f.axes == (0, *range(2, f.rank))
            and _along(f, (1,))
        ),
    ),
    (
        "RMS normalization (Zhang and Sennrich 2019), as in torch.nn.RMSNorm",
        lambda f: _root_mean_square(f) and f.place in ("inside", "none"),
    ),
    (
        "RMS normalization, epsilon added to the root, as in its authors' code (bzhangGo/rmsnorm)",
        lambda f: _root_mean_square(f) and f.place == "outside",
    ),
    (
        "Gemma's RMS normalization, with gain 1 + g (huggingface/transformers#29402)",
        lambda f: _root_mean_square(f, offset=1.0) and f.place == "inside",
    ),
)


def names(form: Form) -> list[str]:
    """The publications whose formula it is, none or several; each has gains and biases by unit."""
    return [] if form.shared else [name for name, rule in PUBLISHED if rule(form)]
