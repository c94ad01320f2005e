"""A character-level transformer (chapters 21 and 22): where does it normalize, and has it to?

Three sweeps of novels, each a profile with comparisons of its own, and one model (`model`).

`standard`, placement: 12 blocks of 48 units, windows of 64 characters, 1200 updates of 8 windows.
- `layer` (norms first), `post` (norms last), `rms`, `peri`, `qk` (queries and keys normalized,
  too). `layer/cold`, `post/cold`: without warm-up, with a rate of their own.
- `layer/scaling`: LayerNorm scaling, `layer/scaled`: the scaled start of GPT-2, its control.
- `none`, and its control `rescaled`, whose layers start with unit variance and whose branches are
  divided by √(2L): what it explains is not credited to normalization.

`data`, amount of data: 4 blocks of 64 units, 1500 updates of 16 windows, of 10,000 characters
(`…/little`) or all 3.7 million (`…/much`). `layer/little/dropout`: dropout 0.2.

`optimizer`: the same model on all characters, AdamW against Muon. `alpha-0.3`: where α starts.

Not as in any of the papers: sizes, budgets and text; every arm has its own tuned rate, where most
papers have one for all. AdamW, weight decay 0.1 on matrices, gradients cut at norm 1, a linear
warm-up over the first tenth of the updates, half a cosine down to a tenth of the rate. Weights
start as Xavier's, embeddings with variance 1, since DyT and Derf do not learn from small ones.

Plan. Metrics: `best_test_nll`, the test cross-entropy where validation's is lowest, and for the
amount of data `test_nll`, that at the end, since overfitting is what is asked about. Rates are
chosen by the validation cross-entropy at the end of tuning runs of a quarter (`data`: half) of the
updates. Processor time of one core, on a busy machine: 0.04 to 0.05 s an update of `standard`, a
run 60 s; some 120 runs, tuning ones counted by their length, take two hours; the other sweeps as
long. An AdamW that goes from parameter to parameter took 0.056 s where the fused one takes 0.040.
The first stage had five seeds; it was brought to ten, as this book's rule asks where a run
takes less than two minutes, when the results with five were known (`Profile.short_first`). With
that AdamW, on one busy core an update read 8,900 characters a second in `standard` and 26,000 in
the others; nanoGPT's own model of the same sizes, measured in turns with ours, 9,100 and 25,600.
Pilots, which no record holds, seed 900, rate 0.002, one run each, for timings and to see that arms
learn: `layer` (also by heart), `post/cold` of 60 short updates, `dyt/much`, `layer/little`, which
overfits as it should, and 500 updates of `derf/muon`. A throw-away prototype of other sizes showed
that with embeddings of deviation 0.02 DyT and Derf learn nothing, that 600 updates are too few, and
at one rate and seed Post-LN ahead of Pre-LN at four blocks.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from layernorm.lab.data.characters import sha256
from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.options import Count, Options, Positive
from layernorm.lab.experiments.transformer.comparisons import (
    BEST,
    COMPARISONS,
    ON_DATA,
    ON_OPTIMIZER,
)
from layernorm.lab.experiments.transformer.model import ALPHAS
from layernorm.lab.experiments.transformer.task import Characters, Scheduled, ScheduledGraph

METHODS = ("none", "layer", "rms", "dyt", "derf")
Share = Annotated[float, Field(ge=0, lt=1)]


class TransformerOptions(Options):
    """The options of a run, besides those that all experiments share.

    `depth` blocks of `hidden` units and `heads` heads read windows of `context` characters of a
    `text`, of whose training part the first `characters` are used (None: all). `placement`,
    `layernorm_scaling`, `scaled`, `qk_norm`: see `model`. `alpha`: where that of DyT and Derf
    starts. `warmup`: a share of the updates. `held_out`: windows of validation, and of test.
    """

    batch_size: Count = 8
    learning_rate: Positive = 2e-3
    clip: Positive | None = 1.0
    text: Literal["manual", "novels"] = "manual"
    characters: Count | None = None
    held_out: Count = 128
    depth: Count = 12
    hidden: Count = 32
    heads: Count = 4
    context: Count = 48
    embedding_std: Positive = 1.0
    placement: Literal["pre", "post", "peri"] = "pre"
    layernorm_scaling: bool = False
    scaled: bool = False
    qk_norm: bool = False
    alpha: Positive = 0.5
    dropout: Share = 0.0
    warmup: Share = 0.1
    optimizer: Literal["adamw", "muon"] = "adamw"
    weight_decay: Annotated[float, Field(ge=0)] = 0.1

    def check(self) -> None:
        super().check()
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden ({self.hidden}), got {self.heads}")
        for name, usual in (("placement", "pre"), ("layernorm_scaling", False), ("qk_norm", False)):
            if self.method == "none" and getattr(self, name) != usual:
                raise ValueError(f"{name} is about norms, and method 'none' has none; leave it out")
        if self.layernorm_scaling and self.placement == "post":
            raise ValueError("layernorm_scaling needs norms that come first, got placement 'post'")
        if self.alpha != 0.5 and self.method not in ALPHAS:
            raise ValueError(f"alpha is for methods dyt and derf, got method {self.method!r}")


LAYER, DYT, DERF, RMS = ({"method": name} for name in ("layer", "dyt", "derf", "rms"))
COLD, MUON, LITTLE = {"warmup": 0.0}, {"optimizer": "muon"}, {"characters": 10_000}
PLACEMENT = {
    "layer": LAYER,
    "layer/cold": {**LAYER, **COLD},
    "post": {**LAYER, "placement": "post"},
    "post/cold": {**LAYER, "placement": "post", **COLD},
    "rms": RMS,
    "layer/scaling": {**LAYER, "layernorm_scaling": True},
    "layer/scaled": {**LAYER, "scaled": True},
    "rescaled": {"method": "none", "rescaled": True},
    "none": {"method": "none"},
    "peri": {**LAYER, "placement": "peri"},
    "qk": {**LAYER, "qk_norm": True},
}
DATA = {
    **{
        f"{name}/{much}": {**arm, **(LITTLE if much == "little" else {})}
        for name, arm in (
            ("layer", LAYER),
            ("dyt", DYT),
            ("derf", DERF),
            ("rescaled", {"method": "none", "rescaled": True}),
        )
        for much in ("little", "much")
    },
    "layer/little/dropout": {**LAYER, **LITTLE, "dropout": 0.2},
}
OPTIMIZER = {
    **{
        f"{name}/{optimizer}": {**arm, "optimizer": optimizer}
        for name, arm in (("rms", RMS), ("dyt", DYT), ("derf", DERF))
        for optimizer in ("adamw", "muon")
    },
    "derf/muon/alpha-0.3": {**DERF, **MUON, "alpha": 0.3},
}
NOVELS = {"text": "novels", "context": 64, "held_out": 256, "updates": 1500, "evaluations": 10}
SMALL = {**NOVELS, "depth": 4, "hidden": 64, "batch_size": 16}
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
SEEDS = {
    "seeds": tuple(range(20)),
    "tuning_seeds": (1000, 1001, 1002),
    "first": 10,
    "short_first": 5,
}

EXPERIMENT = Experiment(
    name="transformer",
    question="Where should a transformer normalize, and does it have to?",
    options=TransformerOptions,
    arms={**PLACEMENT, **DATA, **OPTIMIZER},
    task=Characters,
    data=lambda options: sha256(options.text),
    profiles={
        "book": Profile(
            arms=("layer", "layer/cold", "post", "post/cold", "none", "rescaled"),
            seeds=(0, 1, 2),
            options={"depth": 8, "updates": 120, "evaluations": 10, "held_out": 32},
        ),
        "standard": Profile(
            arms=tuple(PLACEMENT),
            options={**NOVELS, "hidden": 48, "updates": 1200},
            learning_rates=RATES,
            tuning_share=0.25,
            **SEEDS,
        ),
        "data": Profile(
            arms=tuple(DATA),
            options=SMALL,
            learning_rates=RATES,
            tuning_share=0.5,
            comparisons=ON_DATA,
            **SEEDS,
        ),
        "optimizer": Profile(
            arms=tuple(OPTIMIZER),
            options=SMALL,
            learning_rates=RATES,
            tuning_share=0.25,
            comparisons=ON_OPTIMIZER,
            **SEEDS,
        ),
        "paper": Profile(
            arms=("layer", "post", "rms", "dyt/adamw", "derf/adamw", "rescaled"),
            options={
                "text": "novels",
                "depth": 12,
                "hidden": 768,
                "heads": 12,
                "context": 1024,
                "dropout": 0.1,
                "batch_size": 512,
                "learning_rate": 6e-4,
                "warmup": 2000 / 600_000,
                "updates": 600_000,
                "evaluations": 600,
            },
        ),
    },
    primary=BEST,
    select="validation_nll",
    tuned_on="validation_nll",
    comparisons=COMPARISONS,
    overfit={"examples": 16, "batch_size": 16, "updates": 300, "evaluations": 5, "dropout": 0.0},
    depends_on=(Scheduled,),
    trainer=Scheduled,
    graphed=ScheduledGraph,
)
