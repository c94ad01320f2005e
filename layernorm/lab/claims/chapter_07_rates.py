"""Claims that chapter 07 decides about large learning rates: what σ makes of them."""

from __future__ import annotations

from layernorm.lab.analysis import weights
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_07_length import MLP, without


@claim(
    id="a-giant-step-tames-itself",
    statement="However large the learning rate, after one step of gradient descent the next turns "
    "a normalized weight matrix by an angle whose tangent is at most c₁/(2c₀), c = ‖W‖‖∇‖ before "
    "either step.",
    kind="property",
    chapter="07",
    rule="10 layer-normalized networks, rates from 0.001 to 1,000,000: proved if the bound holds "
    "everywhere to 1e-9, and is reached to 10% somewhere; else refuted",
    sabotage=(MLP, without),
)
def a_giant_step_tames_itself() -> Finding:
    shares = []
    for _ in range(10):
        cases = weights.some_cases()
        for power in range(-3, 7):
            shares.append(weights.one_giant_step(weights.network("layer"), cases, 10.0**power))
    holds = 0.9 < max(shares) < 1 + 1e-9
    return Finding(
        "proved" if holds else "refuted",
        f"Over 100 first steps the second one reaches at most "
        f"{f'{max(shares):.0%}' if holds else 'more than 100%'} of the bound.",
        numbers={"largest": max(shares)},
    )


@claim(
    id="sigma-makes-learning-stable",
    statement="The normalization scalar σ makes learning more stable.",
    kind="property",
    chapter="07",
    rule="digits, gradient descent with a rate of 100 for hidden weights (0.1 for the rest), 3 "
    "seeds: proved if the mean training loss with layer normalization is less than half of that "
    "without and of the rescaled control's, on the digits as they are and on centered ones; "
    "conditional if on the digits as they are; else refuted",
    sabotage=(MLP, without),
)
def sigma_makes_learning_stable() -> Finding:
    from layernorm.lab import data

    train = data.digits().train
    raw = train.x.flatten(1).double()
    loss, holds = {}, {}
    for name, x in (("raw", raw), ("centered", raw - raw.mean(0))):
        for arm in ("layer", "none", "rescaled"):
            runs = [weights.at_hidden_rate(x, train.y, arm, 100.0, seed) for seed in range(3)]
            loss[name, arm] = sum(runs) / len(runs)
        holds[name] = 2 * loss[name, "layer"] < min(loss[name, "none"], loss[name, "rescaled"])
    told = {
        name: f"{loss[name, 'layer']:.1f} with layer normalization, {loss[name, 'none']:.1f} "
        f"without, {loss[name, 'rescaled']:.1f} rescaled"
        for name in holds
    }
    evidence = f"Loss on the digits as they are: {told['raw']}; centered: {told['centered']}."
    numbers = {f"{name} {arm}": value for (name, arm), value in loss.items()}
    if not holds["raw"]:
        return Finding("refuted", evidence, numbers=numbers)
    if holds["centered"]:
        return Finding("proved", evidence, numbers=numbers)
    condition = "the data are not centered"
    return Finding("conditional", evidence, condition=condition, numbers=numbers)
