"""What summaries C and D say, in the order in which they say it."""

from layernorm.lab.claims.sources.shared import (
    ADDING_AND_COPY,
    BATCHES,
    BETTER_THAN_BATCH,
    DEFINITION,
    FASTER,
    MNIST,
    RECURRENT_FASTER,
    TABLE_1,
)
from layernorm.lab.claims.sources.statement import Source, says, uncheckable

C = Source(
    name="summary C",
    title="a reader's summary with references",
    count=24,
    statements=(
        says(
            1,
            "Improves the stability and convergence of training.",
            "sigma-makes-learning-stable",
            *FASTER,
        ),
        says(
            2,
            "All units of a layer share their statistics, which differ between cases.",
            "one-mean-and-spread-per-case",
        ),
        says(
            3,
            "Thorough comparison with batch and weight normalization in experiments.",
            "paper-compares-with-weight-normalization",
        ),
        says(
            4,
            "Batch normalization takes its terms from the mini-batch.",
            "batch-output-depends-on-other-cases",
        ),
        says(
            5,
            "It cannot be used with batches that are small or of one case.",
            *("no-batch-normalization-at-batch-size-1", "small-batches-estimate-badly"),
        ),
        says(
            6,
            "Running averages make training and test differ.",
            "batch-computes-otherwise-in-evaluation",
        ),
        says(
            7,
            "In a recurrent network it needs separate statistics for each time step.",
            *("separate-statistics-for-each-step", "shared-statistics-harm/digit_rows"),
        ),
        says(
            8,
            "Longer sequences at test time have no statistics.",
            "no-statistics-beyond-the-longest-training-sequence",
            "longer-sequences-harm-batch-normalization/digit_rows",
        ),
        says(
            9,
            "Layer normalization works at any batch size.",
            *("independent-of-batch-size", "usable-at-batch-size-1"),
            *("learns-online/digits", "robust-to-small-batches/digits", "learns-online/mnist"),
        ),
        says(10, "Identical in training and test.", "same-in-training-and-evaluation"),
        says(
            11,
            "Applies seamlessly to recurrent networks.",
            *("longer-sequences-need-no-statistics", "ln-rnn-dynamics-more-stable"),
            *(f"longer-sequences-are-no-problem/{task}" for task in ADDING_AND_COPY),
        ),
        uncheckable(12, "The equations of μ and σ.", DEFINITION),
        says(13, "Table 1 shows different trade-offs.", *TABLE_1),
        says(
            14,
            "Invariant to re-scaling and shifting the whole weight matrix.",
            "layer-norm-ignores-scale-and-center-of-weights",
        ),
        says(
            15,
            "So it should be robust to how weights are initialized.",
            *("initial-function-ignores-scale", "robust-to-initial-scale/digits"),
            *("robust-to-shifted-weights/digits", "robust-to-uneven-weights/digits"),
            *("learning-ignores-initial-scale/digits", "robust-to-initial-scale/deep_digits"),
            *("learning-ignores-initial-scale/deep_digits", "robust-to-initial-scale/mnist"),
            "learning-ignores-initial-scale/mnist",
        ),
        says(
            16,
            "Not being invariant to a shift of the data is harmless, since data are centered.",
            *("centering-absorbs-a-data-shift", "data-shift-harmless-if-centered/digits"),
        ),
        says(17, "Six evaluations, mostly recurrent.", "six-tasks-mostly-recurrent"),
        says(
            18,
            "The attentive reader learns much faster than with batch normalization.",
            "faster-than-batch/attentive_reader",
        ),
        says(
            19, "The attentive reader is that of Vendrov et al.", "attentive-reader-is-by-vendrov"
        ),
        says(
            20,
            "It even beats a batch normalization made for recurrent networks.",
            *("better-result-than-batch/attentive_reader", "faster-than-batch-lstm/digit_rows"),
        ),
        says(
            21,
            "On MNIST it clearly gains in training loss and test error over both others.",
            *(f"faster-than-plain/{batch}" for batch in MNIST),
            *("better-result-than-plain/mnist", "better-result-than-batch/mnist"),
            *BETTER_THAN_BATCH,
            *(f"better-result/{batch}" for batch in BATCHES[1:]),
        ),
        says(
            22,
            "It lowers the learning rate of weight vectors with a large norm.",
            "norm-is-a-learning-rate",
        ),
        uncheckable(
            23,
            "The theory is preliminary; the experiments are the main strength.",
            "a reader's opinion",
        ),
        says(24, "Improves several tasks and architectures, also recurrent.", *RECURRENT_FASTER),
    ),
)

D = Source(
    name="summary D",
    title="a comparison of batch and layer normalization for language",
    count=27,
    statements=(
        says(
            1,
            "Normalization gives layers inputs of mean 0 and variance 1, whatever the batch.",
            *("layer-inputs-standardized", "batch-output-has-mean-0-variance-1"),
        ),
        says(2, "Layers need not adapt to changing inputs.", "drift-reduced/digits"),
        says(
            3,
            "It keeps activation functions out of their inactive region.",
            *("inactive-region-avoided", "inactive-region-avoided/digits"),
        ),
        uncheckable(
            4,
            "It speeds up convergence.",
            "it does not say which normalization, against what; the claims of the paper and of "
            "summaries A to C do",
        ),
        says(
            5,
            "Batch normalization avoids overfitting, since it ties the cases of a batch.",
            *("batch-normalization-avoids-overfitting/digits",),
            "batch-output-depends-on-other-cases",
        ),
        says(6, "It treats each unit apart.", "batch-treats-each-unit-apart"),
        uncheckable(7, "The equations of batch normalization.", DEFINITION),
        says(
            8,
            "It depends on the batch size; small batches stand badly for the whole.",
            *("small-batches-estimate-badly", "robust-to-small-batches/digits"),
        ),
        uncheckable(
            9,
            "It assumes that one feature has the same distribution in all cases.",
            "a way of thinking that is ascribed to a method",
        ),
        says(10, "Batches must be scattered over the data.", "batches-must-be-scattered/digits"),
        says(
            11,
            "Training and inference differ.",
            "batch-computes-otherwise-in-evaluation",
        ),
        says(
            12,
            "A single case has no usable statistics.",
            "no-batch-normalization-at-batch-size-1",
        ),
        says(
            13,
            "Running averages stand for all training cases.",
            "running-statistics-stand-for-all-training-data",
        ),
        says(
            14,
            "Layer normalization works on single cases: a mean and spread for each.",
            *("one-mean-and-spread-per-case", "independent-of-batch-size"),
        ),
        uncheckable(15, "The learned scale and shift of layer normalization.", DEFINITION),
        says(
            16,
            "Nothing has to be stored; training and inference agree.",
            "same-in-training-and-evaluation",
        ),
        uncheckable(
            17,
            "It assumes that all features of a case are alike, which holds for language.",
            "a way of thinking that is ascribed to a method",
        ),
        says(
            18,
            "Features of different kinds, such as age and height, are a great problem.",
            *("layer-norm-mixes-features", "mixed-units/digits"),
        ),
        says(
            19,
            "With varying lengths, later steps have fewer cases, like a smaller batch.",
            "later-steps-rest-on-fewer-cases",
        ),
        says(
            20,
            "The longer the sequences, the worse batch normalization works.",
            "late-steps-harm-batch-normalization/digit_rows",
        ),
        says(
            21,
            "Sequences longer than in training find no statistics.",
            "no-statistics-beyond-the-longest-training-sequence",
        ),
        says(
            22,
            "Varying lengths are no problem for layer normalization.",
            *("longer-sequences-need-no-statistics", "statistics-of-the-current-step"),
        ),
        uncheckable(
            23,
            "The features of a sentence have one distribution.",
            "it names neither the features nor the data",
        ),
        says(
            24,
            "Libraries normalize the innermost dimension, which padding does not disturb.",
            "padding-leaves-layer-normalization-alone",
        ),
        says(
            25,
            "Batch normalization over [batch × steps, units] counts the padding.",
            *("padding-enters-batch-statistics", "counting-padding-slows-learning/digit_rows"),
        ),
        says(
            26,
            "The first step of both gives mean 0 and variance 1.",
            *("output-has-mean-0-variance-1", "batch-output-has-mean-0-variance-1"),
        ),
        says(
            27,
            "The second step restores the expressive power of the data.",
            "gain-and-bias-restore-batch-normalization",
            "gain-and-bias-restore-layer-normalization",
        ),
    ),
)
