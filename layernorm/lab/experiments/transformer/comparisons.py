"""The comparisons of the transformer's sweeps: margins, gates, claims; the arms are `plan`'s."""

from __future__ import annotations

from layernorm.lab.analysis.curves import beyond
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Contrast,
    Gate,
    Margin,
    Said,
    less,
    minus,
)

BEST, END = "best_test_nll", "test_nll"
NATS = Margin(
    *(0.03, "nats", "the test cross-entropy where validation's is lowest"),
    "3% in perplexity a character, about what half as many updates again would give",
)
AT_END = Margin(
    *(0.03, "nats", "the test cross-entropy after the last update"),
    "3% in perplexity a character, about what half as many updates again would give",
)
FLAT = Margin(
    *(0.05, "of the numbers", "the share of numbers at which the curve is nearly flat"),
    "a twentieth of what a curve is given",
    null="networks before training, which do not know how much data there will be",
)
MEAN = Margin(
    *(0.06, "of the mean square", "the part that the squared mean over units has in it"),
    "as much as changes the length of a normalized vector by 3%",
    null="a vector of random direction, of which it is 1/H on average; it is subtracted",
)


def random_direction(options: dict) -> float:
    """The part that the squared mean has on average in the mean square of H random numbers."""
    return 1 / options["hidden"]


def gates(*exempt: str) -> tuple[Gate, ...]:
    return (
        Gate("does not memorize 16 windows", "train_error", 10.0, by_heart=True),
        Gate(
            "is not clearly below a model that knows how frequent each character is",
            *("of_unigram", 1.0),
            surely=True,
            exempt=exempt,
        ),
    )


def _row(name: str, contrast: Contrast, id: str, statement: str, **more) -> Comparison:
    given = {"margin": NATS, **more}
    return Comparison(name, contrast, claim=Said(f"{id}/transformer", statement), **given)


SIGN = (
    "little-data-favors-dynamic-tanh",
    "With little data a transformer with dynamic tanh ends with a lower loss than one with layer "
    "normalization, with much data with a higher one (Verma 2026).",
)

COMPARISONS = Comparisons(
    chapter="21",
    gates=gates("post/cold", "none"),
    rows=(
        _row(
            "layer/cold - layer",
            less("layer/cold", "layer", BEST),
            "normalizing-first-needs-no-warm-up",
            "A transformer that normalizes before each block needs no warm-up: without one it is "
            "not worse (Xiong et al. 2020).",
            says="not worse",
        ),
        _row(
            "post - post/cold",
            less("post", "post/cold", BEST),
            "normalizing-last-needs-a-warm-up",
            "A transformer that normalizes after each block needs a warm-up: with one it is better "
            "(Xiong et al. 2020).",
        ),
        _row(
            "layer - rescaled",
            less("layer", "rescaled", BEST),
            "better-than-rescaled",
            "A deep transformer with layer normalization learns better than one without norms "
            "whose layers start with unit variance.",
        ),
        _row(
            "rms - layer",
            less("rms", "layer", BEST),
            "rms-is-as-good",
            "A transformer with RMS normalization is as good as one with layer normalization "
            "(Zhang and Sennrich 2019).",
            says="same",
        ),
        _row(
            "layer/scaling - layer",
            less("layer/scaling", "layer", BEST),
            "scaling-is-better",
            "A deep transformer is better if the output of each norm is divided by the root of its "
            "block's number (LayerNorm scaling, Sun et al. 2025).",
        ),
        _row(
            "layer/scaling - layer/scaled",
            less("layer/scaling", "layer/scaled", BEST),
            "scaling-is-better-than-a-scaled-start",
            "LayerNorm scaling makes a deep transformer better than scaled initial residual "
            "matrices do, the control of this book.",
        ),
        _row(
            "mean of rms",
            ((1, "rms", beyond("mean_share", random_direction)),),
            "the-mean-is-small",
            "In a trained transformer the squared mean over units makes up at most "
            f"{MEAN.size:g} more of the mean square of what the norms get than it does in a vector "
            "of random direction (after Gupta et al. 2024).",
            margin=MEAN,
            says="not worse",
        ),
        *(
            Comparison(f"{arm} - layer", less(arm, "layer", BEST), NATS, family="exploratory")
            for arm in ("post", "peri", "qk", "none")
        ),
    ),
)
ON_DATA = Comparisons(
    chapter="22",
    profile="data",
    gates=gates("*/little*"),
    rows=(
        _row("dyt - layer, little", less("dyt/little", "layer/little", END), *SIGN, margin=AT_END),
        _row("layer - dyt, much", less("layer/much", "dyt/much", END), *SIGN, margin=AT_END),
        _row(
            "dyt - layer, much",
            less("dyt/much", "layer/much", END),
            "dynamic-tanh-is-not-worse",
            "A transformer with dynamic tanh is not worse than one with layer normalization (Zhu "
            "et al. 2025).",
            margin=AT_END,
            says="not worse",
        ),
        _row(
            "derf - layer, much",
            less("derf/much", "layer/much", END),
            "dynamic-erf-is-better",
            "A transformer with dynamic erf is better than one with layer normalization (Chen et "
            "al. 2025).",
            margin=AT_END,
        ),
        _row(
            "layer with dropout - dyt, little",
            less("layer/little/dropout", "dyt/little", END),
            "dropout-does-what-dynamic-tanh-does",
            "With little data, layer normalization with dropout is not worse than dynamic tanh "
            "without it.",
            margin=AT_END,
            says="not worse",
        ),
        _row(
            "saturation, much - little",
            less("dyt/much", "dyt/little", "saturated"),
            "little-data-saturates-dynamic-tanh",
            "Dynamic tanh saturates more with little data than with much (Verma 2026).",
            margin=FLAT,
        ),
        *(
            Comparison(f"{one} - {two}", less(one, two, of), margin, family="exploratory")
            for one, two, of, margin in (
                ("rescaled/little", "layer/little", END, AT_END),
                ("rescaled/much", "layer/much", END, AT_END),
                ("derf/little", "layer/little", END, AT_END),
            )
        ),
        Comparison(
            "dyt - layer, little, stopped early",
            *(less("dyt/little", "layer/little", BEST), NATS),
            family="exploratory",
        ),
    ),
)


def _gap(favored: str, other: str) -> Contrast:
    """One arm less another under Muon, less the same under AdamW; negative: a larger lead."""
    muon, adamw = (less(f"{favored}/{o}", f"{other}/{o}", BEST) for o in ("muon", "adamw"))
    return minus(muon, adamw)


ON_OPTIMIZER = Comparisons(
    chapter="22",
    profile="optimizer",
    gates=gates(),
    rows=(
        _row(
            "lead of rms on derf, Muon - AdamW",
            _gap("rms", "derf"),
            "muon-widens-the-gap-of-dynamic-erf",
            "Dynamic erf falls further behind RMS normalization with Muon than with AdamW "
            "(Abouzeid 2026).",
        ),
        _row(
            "lag of dyt behind rms, Muon - AdamW",
            _gap("dyt", "rms"),
            "muon-leaves-the-gap-of-dynamic-tanh",
            "Dynamic tanh does not fall further behind RMS normalization with Muon than with AdamW "
            "(Abouzeid 2026).",
            says="not worse",
        ),
        _row(
            "derf with Muon, alpha 0.3 - 0.5",
            less("derf/muon/alpha-0.3", "derf/muon", BEST),
            "a-smaller-alpha-helps-dynamic-erf-with-muon",
            "With Muon, dynamic erf is better if alpha starts at 0.3 instead of 0.5 (Abouzeid "
            "2026).",
        ),
        _row(
            "rms, Muon - AdamW",
            less("rms/muon", "rms/adamw", BEST),
            "muon-is-better-than-adamw",
            "A transformer with RMS normalization is better trained by Muon than by AdamW (Jordan "
            "et al. 2024).",
        ),
    ),
)
