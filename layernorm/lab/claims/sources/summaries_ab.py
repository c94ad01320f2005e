"""What summaries A and B say, in the order in which they say it."""

from layernorm.lab.claims.sources.shared import (
    BATCHES,
    BETTER_THAN_BATCH,
    DEFINITION,
    FASTER,
    HISTORY,
    RECURRENT_FASTER,
    TABLE_1,
)
from layernorm.lab.claims.sources.statement import Source, says, uncheckable

A = Source(
    name="summary A",
    title="a reader's summary",
    count=26,
    statements=(
        says(
            1,
            "Normalization makes training faster by fixing covariate shift.",
            *("less-drift-causes-the-gain/mnist", "drift-reduced/digits"),
        ),
        says(
            2,
            "Covariate shift is high correlation in the summed inputs of different units, caused "
            "by correlated changes in the layer below.",
            *("covariate-shift-is-correlation", "correlated-changes/digits"),
            *("removes-correlation", "removes-correlation/digits"),
        ),
        says(
            3,
            "So gradients depend much on the outputs of the layer below.",
            "gradients-follow-the-layer-below",
        ),
        uncheckable(4, "The main contribution is to mend batch normalization.", HISTORY),
        says(
            5,
            "It does not depend on the size of the mini-batch.",
            *("independent-of-batch-size", "robust-to-small-batches/digits"),
        ),
        says(
            6,
            "Statistics over all units of a layer, for each case alone.",
            "one-mean-and-spread-per-case",
        ),
        says(7, "Normalization implicitly lowers the learning rate.", "norm-is-a-learning-rate"),
        says(
            8,
            "... and makes learning more stable.",
            *("sigma-makes-learning-stable", "angle-per-update-shrinks"),
        ),
        uncheckable(9, "Batch normalization came in 2015, against covariate shift.", HISTORY),
        says(
            10,
            "Batch normalization normalizes each unit on its own.",
            "batch-treats-each-unit-apart",
        ),
        uncheckable(11, "The equations of both normalizations.", DEFINITION),
        says(
            12,
            "The expectations cannot be computed exactly; a mini-batch estimates them, which "
            "makes batch normalization sensitive to its size.",
            "small-batches-estimate-badly",
        ),
        says(
            13,
            "Batches cannot be arbitrarily small.",
            "no-batch-normalization-at-batch-size-1",
        ),
        says(
            14,
            "Layer normalization works with one case, as in online learning.",
            *("usable-at-batch-size-1", "learns-online/digits", "learns-online/mnist"),
        ),
        says(
            15,
            "Batch normalization needs statistics for each time step of a recurrent network.",
            *("separate-statistics-for-each-step", "shared-statistics-harm/digit_rows"),
        ),
        says(
            16,
            "Sequences of varying length are a problem for batch normalization.",
            "longer-sequences-harm-batch-normalization/digit_rows",
        ),
        says(
            17,
            "Layer normalization uses the current time step only, and has no such problem.",
            *("statistics-of-the-current-step", "longer-sequences-need-no-statistics"),
        ),
        says(
            18,
            "It computes the same in training and test, batch normalization does not.",
            *("same-in-training-and-evaluation", "batch-computes-otherwise-in-evaluation"),
        ),
        says(19, "Table 1 says which method is invariant under what.", *TABLE_1),
        says(
            20,
            "Weight normalization divides by the L2 norm and does not center.",
            "weight-norm-divides-by-length",
        ),
        says(21, "Table 1 has no clear favorite.", "no-clear-favorite-in-table-1"),
        says(
            22,
            "Re-scaling a single case does not change the prediction.",
            "layer-norm-ignores-scale-of-a-case",
        ),
        says(23, "Six tasks, mostly recurrent networks.", "six-tasks-mostly-recurrent"),
        says(
            24,
            "It outperforms batch normalization in speed and results “in all tests”.",
            "paper-beats-batch-normalization-in-all-tests",
            *BETTER_THAN_BATCH,
            *("faster-than-batch-lstm/digit_rows", "faster-than-batch/attentive_reader"),
            *("better-result-than-batch/attentive_reader", "better-result-than-batch/mnist"),
        ),
        says(
            25,
            "It outperforms models without normalization in speed and results.",
            *FASTER,
            *RECURRENT_FASTER,
            *(f"better-result/{batch}" for batch in BATCHES[1:]),
            *("faster-per-update/order_embeddings", "generalizes-better/order_embeddings"),
            *("faster-per-update/skip_thoughts", "better-result/skip_thoughts"),
            *("twice-as-fast/draw", "better-result/draw"),
            *("faster-per-update/handwriting", "better-result/handwriting"),
            "better-result-than-plain/mnist",
        ),
        says(
            26,
            "The attentive reader is an example of the speedup in validation error.",
            "faster-than-plain/attentive_reader",
        ),
    ),
)

B = Source(
    name="summary B",
    title="a short page on the method",
    count=11,
    statements=(
        says(1, "Reduces training time.", *FASTER),
        says(
            2,
            "Stabilizes the hidden states of recurrent networks.",
            *("ln-rnn-state-stays-in-range", "ln-rnn-dynamics-more-stable"),
        ),
        says(3, "Does not depend on the size of the mini-batch.", "independent-of-batch-size"),
        says(
            4,
            "The same computation in training and testing.",
            "same-in-training-and-evaluation",
        ),
        uncheckable(5, "Statistics, notation and both equations.", DEFINITION),
        uncheckable(6, "Batch normalization was introduced against covariate shift.", HISTORY),
        says(
            7,
            "It slows down each update, since moments are slow on a GPU.",
            *("slower-per-update/gpu", "slower-per-update/recurrent_cpu"),
            *("slower-per-update/mlp_cpu", "slower-per-update/mnist"),
            "moments-slower-than-products/gpu",
        ),
        says(
            8,
            "It usually shortens training all the same.",
            *("faster-in-seconds/digits", "faster-in-seconds/mnist"),
        ),
        uncheckable(
            9,
            "There is no guarantee for better results.",
            "a caution that no result could contradict",
        ),
        says(
            10,
            "In convolutional networks it is faster than none, and batch normalization is best.",
            *("layer-beats-none/convnet", "batch-beats-layer/convnet"),
        ),
        uncheckable(
            11,
            "Convolutional networks need further research.",
            "an opinion about future work, quoted from the paper",
        ),
    ),
)
