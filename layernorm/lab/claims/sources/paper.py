"""What the paper says that can be checked, and a few things often said about its method.

Numbers 1 to 46 go through the paper by topic, from properties to experiments; the rest is what was
found beyond them.
"""

from layernorm.lab.claims.sources.shared import ADDING_AND_COPY, BATCHES, DEFINITION, DONE, MNIST
from layernorm.lab.claims.sources.statement import Source, elsewhere, says, uncheckable

PAPER = Source(
    name="paper",
    title="Ba, Kiros and Hinton 2016, Layer Normalization",
    count=65,
    statements=(
        says(1, "Section 3: independent of the batch size.", "independent-of-batch-size"),
        says(2, "Abstract: the same in training and test time.", "same-in-training-and-evaluation"),
        says(
            3,
            "Section 3: works with batches of one case, where batch normalization does not.",
            *("usable-at-batch-size-1", "learns-online/digits", "learns-online/mnist"),
            "no-batch-normalization-at-batch-size-1",
        ),
        says(
            4,
            "Section 1: no new dependencies between training cases.",
            *("no-dependencies-between-cases", "batch-output-depends-on-other-cases"),
        ),
        says(
            5,
            "Table 1: which method is invariant under what.",
            *("table-1-row-batch", "table-1-row-weight", "table-1-row-layer"),
            "layer-norm-ignores-scale-and-center-of-weights",
            "layer-norm-ignores-scale-of-a-case",
        ),
        says(
            6,
            "Section 5.1: all methods are invariant to re-scaling the data set.",
            "all-methods-ignore-scale-of-the-data",
        ),
        says(
            7,
            "Section 7: invariant to shifting and scaling the features of one case.",
            "invariant-to-a-shift-of-one-case",
        ),
        says(
            8,
            "Section 5.1: normalizing the inputs does not give invariance to the weights.",
            "normalizing-before-the-weights-loses-their-invariance",
        ),
        elsewhere(9, "The invariances hold exactly.", "eps-breaks-invariance-to-scale"),
        says(
            10,
            "Section 4: layer normalization is no re-parameterization.",
            "layer-norm-is-no-reparameterization",
        ),
        says(
            11,
            "Section 4: weight and batch normalization are.",
            "weight-and-batch-norm-are-reparameterizations",
        ),
        says(
            12,
            "Equation (8): the Fisher matrix is the curvature of the KL divergence.",
            "fisher-is-the-curvature-of-kl",
        ),
        says(13, "Equation (12).", "fisher-of-the-standard-model"),
        says(14, "Equations (13) and (14).", "fisher-of-the-normalized-model"),
        says(
            15,
            "Section 5.2.2: a doubled norm of a weight vector halves the curvature along it.",
            "doubling-the-norm-halves-the-curvature",
        ),
        says(
            16,
            "Section 5.2.2: growing weights lower the learning rate, like early stopping.",
            *("norm-is-a-learning-rate", "angle-per-update-shrinks"),
        ),
        elsewhere(
            17,
            "Normalized weights grow during training.",
            *("norm-grows-during-training", "gradient-orthogonal-to-weights"),
        ),
        says(
            18,
            "Section 5.2.2, equations (32) to (35): learning gains depends on the prediction "
            "error alone, learning lengths on the input, too.",
            *("gain-metric-is-the-prediction-error", "gain-metric-ignores-the-scale-of-inputs"),
            *("length-metric-is-scaled-by-the-input",),
            "weight-normalization-learns-lengths-as-without",
        ),
        says(
            19,
            "Section 3.1: plain recurrent networks explode or vanish; layer-normalized ones are "
            "stable.",
            *("plain-rnn-grows-or-shrinks", "ln-rnn-ignores-the-scale-of-summed-inputs"),
            *("ln-rnn-state-stays-in-range", "ln-rnn-dynamics-more-stable"),
        ),
        says(
            20,
            "Section 3.1: test sequences longer than all training sequences are no problem, as "
            "they are for batch normalization.",
            *(f"longer-sequences-are-no-problem/{task}" for task in ADDING_AND_COPY),
            *("longer-sequences-need-no-statistics", "statistics-of-the-current-step"),
            "longer-sequences-harm-batch-normalization/digit_rows",
            "no-statistics-beyond-the-longest-training-sequence",
        ),
        says(
            21,
            "Sections 1 and 3.1: batch normalization needs statistics for each time step.",
            *("separate-statistics-for-each-step", "shared-statistics-harm/digit_rows"),
        ),
        elsewhere(
            22,
            "Padding enters the statistics of batch normalization.",
            *("padding-enters-batch-statistics", "padding-leaves-layer-normalization-alone"),
            "padding-enters-statistics-of-late-steps",
        ),
        elsewhere(
            23,
            "Batch normalization amplifies gradients where a step has no variance.",
            *("zero-variance-amplifies-gradients", "gradients-explode-on-equal-steps"),
        ),
        says(
            24,
            "Section 6.2: batch normalization needs small gains, layer normalization does best "
            "with gains of 1.",
            *("batch-needs-small-gains/digit_rows", "layer-needs-gains-of-one/digit_rows"),
            "gains-of-one-are-better/attentive_reader",
        ),
        says(
            25,
            "Abstract, sections 6.1 to 6.6: learns in fewer updates.",
            *(f"faster-than-plain/{name}" for name in (*BATCHES, *MNIST, *ADDING_AND_COPY)),
            *(f"faster-per-update/{name}" for name in (*BATCHES, *MNIST, *ADDING_AND_COPY)),
            *("faster-per-update/order_embeddings", "faster-than-plain/attentive_reader"),
            *("faster-per-update/skip_thoughts", "faster-per-update/handwriting"),
        ),
        says(
            26,
            "Section 6.1: best validation model in 60% of the time.",
            "sixty-percent-of-the-time/order_embeddings",
        ),
        says(
            27,
            "Section 6.3: no significant cost of an update.",
            *("no-significant-cost-per-step/recurrent_cpu",),
            "no-significant-cost-per-step/recurrent_gpu",
        ),
        elsewhere(
            28,
            "Slower updates, faster training.",
            *("slower-per-update/recurrent_cpu", "slower-per-update/gpu"),
            *("slower-per-update/mnist", "slower-per-update/mlp_cpu"),
            *("faster-in-seconds/digits", "faster-in-seconds/mnist"),
        ),
        says(
            29,
            "Sections 6.1 and 6.3: generalizes better.",
            *("generalizes-better/order_embeddings", "better-in-every-column-of-table-2"),
            "better-result/skip_thoughts",
        ),
        says(
            30,
            "Section 6.2: does better than both kinds of recurrent batch normalization.",
            *("faster-than-batch/attentive_reader", "better-result-than-batch/attentive_reader"),
            "faster-than-batch-lstm/digit_rows",
        ),
        says(
            31,
            "Section 6.3: every task improves; a month of training improves all but one further.",
            *("better-in-every-column-of-table-3", "month-helps-all-but-one-task"),
        ),
        says(
            32,
            "Section 6.4: DRAW learns almost twice as fast and ends 0.27 nats better.",
            *("twice-as-fast/draw", "better-result/draw"),
        ),
        says(
            33,
            "Sections 6.5 and 7: long sequences and small batches benefit most.",
            "long-sequences-and-small-batches-benefit-most/handwriting",
        ),
        says(
            34,
            "Section 6.6: robust to small batches, and faster than batch normalization.",
            *("robust-to-small-batches/digits", "robust-to-small-batches/mnist"),
            *(f"faster-than-batch/{batch}" for batch in (*BATCHES[1:], *MNIST[1:])),
            *(f"faster-than-batch-with-logits/{batch}" for batch in MNIST[1:]),
            *(f"better-result-than-batch/{batch}" for batch in BATCHES[1:]),
            *(f"better-result/{batch}" for batch in BATCHES[1:]),
        ),
        says(35, "Section 6.6: do not normalize the logits.", "normalized-logits-harm/mnist"),
        says(
            36,
            "Section 6.7: in convolutional networks batch normalization is best, then layer "
            "normalization, then none.",
            *("batch-beats-layer/convnet", "layer-beats-none/convnet"),
        ),
        says(
            37,
            "Section 6.7: border units differ.",
            *("border-units-rarely-active/convnet", "border-units-differ/convnet"),
            "border-explains-the-gap/convnet",
        ),
        says(
            38,
            "Sections 2 and 3: covariate shift is reduced, and that causes the gain.",
            *("drift-reduced/digits", "less-drift-causes-the-gain/mnist"),
            *("correlated-changes/digits", "relu-changes-more-correlated/digits"),
            "gradients-follow-the-layer-below",
        ),
        elsewhere(39, "Gain and bias are useful.", "gain-and-bias-help/mnist"),
        elsewhere(40, "Subtracting the mean matters.", "centering-matters/mnist"),
        elsewhere(
            41,
            "Input and recurrent term are better normalized apart, and all gates together.",
            *(f"separate-norms-are-better-than-joint/{task}" for task in ADDING_AND_COPY),
            *(f"better-than-a-norm-per-gate/{task}" for task in ADDING_AND_COPY),
        ),
        elsewhere(
            42,
            "Bad for features of different kinds.",
            *("layer-norm-mixes-features", "mixed-units/digits"),
        ),
        elsewhere(43, "The output has lost information.", "loses-two-dimensions"),
        says(
            44,
            "Section 3.1: one gain and bias for all time steps.",
            *("one-gain-and-bias-for-all-steps", "parameters-independent-of-length"),
        ),
        says(
            45,
            "Section 1: the noise of batch statistics regularizes.",
            *("batch-noise-regularizes/mnist", "batch-normalization-avoids-overfitting/digits"),
        ),
        elsewhere(
            46,
            "A transformer that normalizes first needs no warm-up.",
            "normalizing-first-needs-no-warm-up/transformer",
        ),
        says(47, "Section 3: one mean and spread per case.", "one-mean-and-spread-per-case"),
        says(
            48,
            "Abstract, section 2: small batches estimate the statistics badly.",
            "small-batches-estimate-badly",
        ),
        says(
            49,
            "Abstract: batch normalization computes something else in evaluation.",
            "batch-computes-otherwise-in-evaluation",
        ),
        says(50, "Equation (5): weight normalization.", "weight-norm-divides-by-length"),
        says(51, "Section 5.2: σ makes learning more stable.", "sigma-makes-learning-stable"),
        says(
            52,
            "Section 5.1: batch normalization is invariant to a shift of the data set, also "
            "while it learns.",
            "data-shift-harmless-to-batch-normalization/digits",
        ),
        says(53, "Section 6: six tasks, most of them recurrent.", "six-tasks-mostly-recurrent"),
        says(54, "Equations (20) to (22).", "scale-of-the-input-is-lost"),
        says(
            55,
            "Equations (26) to (28): the layer-normalized GRU.",
            *("reset-must-act-after-the-norm", "update-gate-conventions-agree"),
        ),
        says(56, "Section 6: gains start at 1, biases at 0.", "gains-start-at-one"),
        says(57, "Supplement: α starts at 0, β at 1.", "printed-start-can-learn"),
        elsewhere(
            58,
            "The normalized cell may be carried, or alone be normalized, as in equations (29) to "
            "(31).",
            *(f"better-than-the-cell-alone/{task}" for task in ADDING_AND_COPY),
            *(f"better-than-a-carried-cell/{task}" for task in ADDING_AND_COPY),
            *("published-cell-is-the-papers", "carried-normalized-cell-cannot-count"),
        ),
        uncheckable(
            59,
            "Section 6.1: state of the art for recurrent embedding models, with one exception.",
            "it is about what others had published in 2016",
        ),
        uncheckable(
            60,
            "Section 1: training networks is computationally expensive.",
            "no measurement is named that it could fail",
        ),
        uncheckable(
            61,
            "Section 6.7: further research is needed for convolutional networks.",
            "an opinion about future work",
        ),
        uncheckable(
            62,
            "Section 6.1: the protocol of Vendrov et al. was followed; 6.2: that of Cooijmans et "
            "al.; 6.3: that of Kiros et al.; 6.5: the architecture of Graves.",
            DONE,
        ),
        uncheckable(
            63,
            "Section 6.3: the original implementation of skip-thoughts differs from theirs.",
            DONE,
        ),
        uncheckable(
            64,
            "Section 2: batch normalization was designed to reduce covariate shift.",
            "it is about the motives of other authors",
        ),
        uncheckable(
            65,
            "Equations (1) to (4), (15) to (31).",
            DEFINITION,
        ),
    ),
)
