"""Skip-thoughts (the paper's section 6.3): do sentence vectors become useful in fewer updates, and
better in the end, if the GRUs that make them are layer-normalized?

The model (`model`) follows the public code that the paper used; `data` has the text and `probes`
the tasks. All arms of a seed start from the same weights and see the same sentences.

- `none`: `torch.nn.GRU`s that start as in that code: weights between -0.1 and 0.1, orthogonal
  recurrent matrices, biases 0. Our embeddings are wider, so that the input term W_x x of these
  smaller layers starts with the standard deviation that it has in the paper's (0.083).
- `layer`: all three GRUs are layer-normalized. `rescaled`: the control, no normalization, but every
  term of every summed input, and the logits, start with unit variance.
- `none/every-step`: the sentence's vector enters every step of a decoder, as in the first paper on
  skip-thoughts and not in the code; it takes the rate of `none`.

Not as in the paper: eight novels for 74 million sentences of unpublished books, sizes and budget
(but in the profile `paper`), tuned rates, a loss averaged over words. As BookCorpus cannot be had,
`paper` reads generated sentences; it shows that the sizes train and what an update costs.

Plan. Judged by four tasks: the error in percent of MR, CR and SUBJ, and 100 (1 - r) of SICK; their
mean is the metric. Primary: what section 6.3 says of its curves (fewer updates) and of its Table 3
(better in the end), each with the control; and in seconds, since it says that an update costs no
more. Speed: the mean of the curve after the start, with a fixed penalty on 2000 cases of a task.
The end: the last update, tasks as in the original. Rates: the lowest mean validation cross-entropy
of the text, in a third of the updates; the tasks are never chosen by. Everything else is
exploratory. An arm has learned if it knows 16 triples by heart and predicts words clearly better
than their frequencies do.

Cost, one core: some 50 ms an update of 32 sentences, 50 s a run; 10 s the curves' tasks; 55 s the
nested cross-validation of three tasks and SICK at the end. With 36 tuning runs of half a minute, a
few of a longer grid, and ten seeds some 90 minutes of processor time, at the cap of 20 seeds, or
where many rates are tied, some 150.

Pilots, seeds 900 and 901, none part of a record: 200 updates of `none` and of `layer` with 128
units at rate 0.004 (on the tasks `layer` was ahead), and 30 of `layer` with 96, for the times
above. They led to fewer units and updates. In the tuning of `book` low rates were worst, so the
grid of `standard` was moved up by a factor of two, for all arms. No margin, and no arm's rate, was
chosen by which arm was ahead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from layernorm.lab.analysis.curves import over_seconds
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Gate, Margin, Said, less
from layernorm.lab.experiments.experiment import Experiment, Original, Profile
from layernorm.lab.experiments.options import Count, Options, Positive
from layernorm.lab.experiments.skip_thoughts.model import METHODS, Reading, SkipThoughts, read


class SkipOptions(Options):
    """`text`: what is read. `vocabulary`: words that have numbers, with the end and the unknown.
    `longest`: words of a sentence. `hidden`, `embedding`: units of each GRU, numbers of each word.
    `embedding_range`: embeddings start evenly from its negative to it. `every_step`: the thought is
    given to every step of a decoder. `summed`: the loss is summed over words, not averaged.
    `held_out`: triples of validation, and as many of test. `nested_from`: runs of at least so many
    updates end with the nested cross-validation."""

    text: Literal["manuals", "novels", "generated"] = "novels"
    batch_size: Count = 32
    clip: Positive | None = 5.0
    vocabulary: Annotated[int, Field(ge=10, le=10**6)] = 2000
    longest: Annotated[int, Field(ge=2, le=1000)] = 29
    hidden: Count = 96
    embedding: Count = 64
    embedding_range: Positive = 0.31
    every_step: bool = False
    summed: bool = False
    held_out: Count = 400
    nested_from: Count = 10**9

    def check(self) -> None:
        super().check()
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")


ARMS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "layer": {"method": "layer"},
    "none/every-step": {"method": "none", "every_step": True},
}
PAPER = {
    "text": "generated",
    "batch_size": 64,
    "learning_rate": 2e-4,
    "summed": True,
    "vocabulary": 20_000,
    "hidden": 2400,
    "embedding": 620,
    "embedding_range": 0.1,
    "updates": 1_000_000,
    "evaluations": 20,
    "nested_from": 1_000_000,
}

SPEED, END = "mean_test_tasks", "tasks"
POINTS = Margin(
    *(1.0, "points", "the mean over the curve of the four tasks' losses"),
    "four fifths of what Table 3 gains by layer normalization in the mean of the same four",
)
AT_END = replace(POINTS, of="the mean of the four tasks' losses after the last update")
PER_SECOND = replace(POINTS, of="that mean over the quicker arm's seconds")
NATS = Margin(
    *(0.05, "nats", "the mean over the curve of the test cross-entropy of a word"),
    "a twentieth of what words' frequencies leave to be gained in the first thousand updates",
)


def _row(
    favored: str, other: str, of: str, metric, margin: Margin, claim: Said | None = None
) -> Comparison:
    family = "primary" if claim else "exploratory"
    contrast = less(favored, other, metric)
    return Comparison(f"{favored} - {other}, {of}", contrast, margin, claim, family=family)


def _of_task(name: str, metric: str, size: float, unit: str, why: str) -> tuple[Comparison, ...]:
    """One task at the end, against both arms; exploratory."""
    margin = Margin(size, unit, f"{name} after the last update", why)
    return tuple(_row("layer", o, name, metric, margin) for o in ("none", "rescaled"))


COMPARISONS = Comparisons(
    chapter="16",
    gates=(
        Gate("does not memorize 16 triples of sentences", "train_error", 1e-9, by_heart=True),
        Gate(
            "does not predict words clearly better than their frequencies do",
            *("test_above_frequencies", 0.0),
            surely=True,
        ),
    ),
    rows=(
        *(
            _row("layer", other, of, metric, margin, Said(f"{id}/skip_thoughts", statement))
            for other, of, metric, margin, id, statement in (
                (
                    *("none", "curve", SPEED, POINTS, "faster-per-update"),
                    "Layer normalization makes skip-thoughts learn in fewer updates, judged by the "
                    "tasks that use their vectors.",
                ),
                (
                    *("rescaled", "curve", SPEED, POINTS, "faster-than-rescaled"),
                    "Skip-thoughts with layer normalization learn in fewer updates than "
                    "skip-thoughts without normalization whose weights start at a good scale.",
                ),
                (
                    *("none", "end", END, AT_END, "better-result"),
                    "Skip-thoughts with layer normalization end with better results in the tasks "
                    "that use their vectors.",
                ),
                (
                    *("rescaled", "end", END, AT_END, "better-result-than-rescaled"),
                    "Skip-thoughts with layer normalization end with better results in the tasks "
                    "than skip-thoughts without normalization whose weights start at a good scale.",
                ),
                (
                    *("none", "seconds", over_seconds("test_tasks"), PER_SECOND),
                    "faster-in-seconds",
                    "Skip-thoughts with layer normalization, in our compiled GRU, also learn "
                    "faster in seconds than those without, in PyTorch's, judged by the tasks that "
                    "use their vectors.",
                ),
            )
        ),
        *(_row("layer", o, "words", "mean_test_nll", NATS) for o in ("none", "rescaled")),
        *_of_task("SUBJ", "subj_error", 0.8, "points", "the gain in Table 3"),
        *_of_task("MR", "mr_error", 2.2, "points", "the gain in Table 3"),
        *_of_task("CR", "cr_error", 0.8, "points", "the gain in Table 3"),
        *_of_task("SICK MSE", "sick_mse", 0.021, "", "the gain in Table 3"),
        _row("none/every-step", "none", "end", END, AT_END),
    ),
)

EXPERIMENT = Experiment(
    name="skip_thoughts",
    question="Do layer-normalized skip-thoughts learn in fewer updates than others, and is it more "
    "than the scale of the start?",
    options=SkipOptions,
    arms=ARMS,
    task=Reading,
    data=lambda options: read(options).sha256,
    profiles={
        "book": Profile(
            arms=("none", "rescaled", "layer"),
            seeds=(0, 1, 2),
            learning_rates=(2e-3, 4e-3, 8e-3, 1.6e-2),
            options={
                "text": "manuals",
                "vocabulary": 1000,
                "hidden": 64,
                "embedding": 32,
                "embedding_range": 0.44,
                "held_out": 100,
                "updates": 240,
                "evaluations": 6,
            },
        ),
        "standard": Profile(
            seeds=tuple(range(100, 120)),
            learning_rates=(2e-3, 4e-3, 8e-3, 1.6e-2),
            tuning_seeds=(1000, 1001, 1002),
            tuning_share=1 / 3,
            first=5,
            options={"updates": 1000, "evaluations": 10, "nested_from": 1000},
        ),
        "paper": Profile(options=PAPER),
    },
    primary=SPEED,
    select="validation_nll",
    averaged=("validation_nll", "test_nll", "test_tasks"),
    comparisons=COMPARISONS,
    rate_of={"none/every-step": "none"},
    overfit={"examples": 16, "batch_size": 16, "updates": 400, "evaluations": 1},
    original=Original(
        claim="Section 6.3: with layer normalization skip-thoughts train faster and, after a "
        "million updates, do better in every task.",
        data="BookCorpus, sentences of unpublished novels in order",
        ours="eight novels of Project Gutenberg; tasks MR, CR, SUBJ, SICK",
        setup="GRU encoder and two decoders with layer normalization, 2400 units, word vectors of "
        "620, vocabulary of 20,000, batches of 64, Adam",
        updates=1_000_000,
        seeds="not said; one run is one curve",
        result="Table 3, without and with layer normalization: SICK r 0.842 and 0.854, MR 77.3 and "
        "79.5, CR 81.8 and 82.6, SUBJ 92.6 and 93.4, MPQA 87.9 and 89.0",
        shown="{hidden} units, word vectors of {embedding}, vocabulary of {vocabulary:,}, batches "
        "of {batch_size}",
        rows=(
            "layer - none, curve",
            "layer - rescaled, curve",
            "layer - none, end",
            "layer - rescaled, end",
        ),
        network=SkipThoughts,
    ),
)
