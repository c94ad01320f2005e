"""Claims of chapter 09 about how a layer-normalized LSTM starts."""

from __future__ import annotations

import torch

from layernorm import functional as F
from layernorm import recurrent
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import LAYER_NORM, draw, held, largest


def overwrites_gains(*args, **options):
    """Mutant: torch's initializer, applied to every parameter."""
    made = recurrent.layers.LayerNormLSTM(*args, **options)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-(made.hidden_size**-0.5), made.hidden_size**-0.5)
    return made


@claim(
    id="gains-start-at-one",
    statement="Gains start at 1 and biases at 0, so that each term of the gates' summed inputs "
    "starts with unit variance. An initializer that draws all parameters alike, as NeMo's copy "
    "does, overwrites the gains and leaves a spread of about 1/sqrt(3 H).",
    rule="H of 64 and 256, float64: held if all gains are 1 and all biases of norms 0 before and "
    "after reset_parameters, each normalized term has mean square 1 to 1e-3, and with gains drawn "
    "uniformly from +-1/sqrt(H) its root mean square is 1/sqrt(3 H) to 10%",
    sabotage=("layernorm.recurrent.LayerNormLSTM", overwrites_gains),
)
def gains_start_at_one() -> Finding:
    kept, unit, overwritten = True, [], []
    for hidden in (64, 256):
        made = recurrent.LayerNormLSTM(8, hidden).double()
        for _ in range(2):
            norms = {k: v for k, v in made.named_parameters() if k.startswith("ln_")}
            kept &= all(bool((v == ("weight" in k)).all()) for k, v in norms.items())
            made.reset_parameters()
        a = draw(50, hidden) @ made.weight_hh_l0.T
        drawn = (2 * torch.rand(4 * hidden, dtype=torch.float64) - 1) / hidden**0.5
        shape = (4 * hidden,)
        unit.append(F.layer_norm(a, shape, made.ln_hh_weight_l0).square().mean().item())
        spread = F.layer_norm(a, shape, drawn).square().mean().sqrt().item()
        overwritten.append(spread * (3 * hidden) ** 0.5)
    ones = all(abs(value - 1) < 1e-3 for value in unit)
    shrunk = all(abs(value - 1) < 0.1 for value in overwritten)
    return held(
        kept and ones and shrunk,
        f"Gains and biases {'are' if kept else 'are not'} 1 and 0, and the terms "
        f"{'have' if ones else 'do not have'} unit variance; drawn gains "
        f"{'shrink' if shrunk else 'do not shrink'} them to 1/sqrt(3 H), within 10%.",
        overwritten_64=overwritten[0],
        overwritten_256=overwritten[1],
    )


def gain_and_bias_swapped(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Mutant: what the printed line needs to make sense."""
    y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()
    y = y if bias is None else y * bias
    return y if weight is None else y + weight


@claim(
    id="printed-start-can-learn",
    statement="The start that the supplement prints below eq. (22), every α at 0 and every β at 1, "
    "is usable, with α the gain and β the bias as in eq. (15).",
    rule="LSTM of eqs. (20) to (22), 10 steps: held if its output depends on its input and a "
    "gradient reaches both weight matrices; refuted if the output is the same for every input and "
    "the gradient exactly 0",
    sabotage=(LAYER_NORM, gain_and_bias_swapped),
)
def printed_start_can_learn() -> Finding:
    made = recurrent.LayerNormLSTM(3, 5, backend="reference").double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.startswith("ln_"):
                parameter.fill_("bias" in name)
    x = draw(10, 4, 3)
    y = made(x)[0]
    (y * draw(*y.shape)).sum().backward()
    gradient = max(largest(made.weight_ih_l0.grad), largest(made.weight_hh_l0.grad))
    change = largest(made(draw(10, 4, 3))[0] - y)
    return held(
        change > 0 and gradient > 0,
        f"Another input {'changes' if change > 0 else 'does not change'} the output, and the "
        f"weights' gradient is {'not ' if gradient > 0 else ''}0.",
        change=change,
        gradient=gradient,
    )
