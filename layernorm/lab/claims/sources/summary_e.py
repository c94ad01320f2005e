"""What summary E says: sentences of the paper, taken out of it one by one."""

from layernorm.lab.claims.sources.shared import ADDING_AND_COPY, DEFINITION, DONE
from layernorm.lab.claims.sources.statement import Source, says, uncheckable

ANNOUNCED = "it announces what follows"

SUMMARY_E = Source(
    name="summary E",
    title="sentences taken from the paper",
    count=41,
    statements=(
        uncheckable(1, "Statistics from all summed inputs of a layer, in one case.", DEFINITION),
        uncheckable(2, "Gain and bias after the norm, before the non-linearity.", DEFINITION),
        says(
            3,
            "Shorter training than earlier techniques.",
            *(f"faster-than-plain/{task}" for task in ADDING_AND_COPY),
            *(f"faster-per-update/{task}" for task in ADDING_AND_COPY),
        ),
        says(
            4,
            "Better training time and generalization of recurrent models.",
            *("faster-per-update/order_embeddings", "generalizes-better/order_embeddings"),
        ),
        uncheckable(5, "Designed to overcome drawbacks of batch normalization.", ANNOUNCED),
        says(
            6,
            "Batch normalization of a recurrent net needs statistics for each time step.",
            "separate-statistics-for-each-step",
        ),
        uncheckable(7, "Related to weight normalization.", "it names no relation"),
        says(8, "Not a re-parameterization.", "layer-norm-is-no-reparameterization"),
        says(
            9,
            "It has other invariance properties than the other methods; Table 1.",
            *("table-1-row-batch", "table-1-row-weight", "table-1-row-layer"),
        ),
        says(
            10,
            "Re-scaling the weights of one unit has no effect under batch and weight "
            "normalization.",
            *("table-1-row-batch", "table-1-row-weight"),
        ),
        says(
            11,
            "All methods are invariant to re-scaling the data set.",
            "all-methods-ignore-scale-of-the-data",
        ),
        says(
            12,
            "Equation (7): a re-scaled case gives the same outputs.",
            "layer-norm-ignores-scale-of-a-case",
        ),
        says(
            13,
            "Batch normalization is invariant to re-centering the data set.",
            "table-1-row-batch",
        ),
        uncheckable(14, "Learning is analyzed by the geometry of the parameters.", ANNOUNCED),
        says(
            15,
            "σ implicitly lowers the learning rate and makes learning more stable.",
            *("sigma-makes-learning-stable", "norm-is-a-learning-rate"),
            "angle-per-update-shrinks",
        ),
        says(
            16,
            "The Fisher matrix of a generalized linear model, equation (12).",
            "fisher-of-the-standard-model",
        ),
        says(
            17,
            "That of the normalized model, equations (13) and (14).",
            "fisher-of-the-normalized-model",
        ),
        says(
            18,
            "Along the length of the weights, the input scales the metric.",
            "length-metric-is-scaled-by-the-input",
        ),
        says(
            19,
            "Along the gain, it depends on the prediction error alone.",
            "gain-metric-is-the-prediction-error",
        ),
        says(20, "Six tasks, most of them recurrent.", "six-tasks-mostly-recurrent"),
        uncheckable(
            21,
            "6.1: order-embeddings, protocol of Vendrov et al., two models, R@K every 300 "
            "iterations, three of them plotted (six sentences).",
            DONE,
        ),
        says(
            22,
            "6.1: faster per iteration in all metrics.",
            "faster-per-update/order_embeddings",
        ),
        says(
            23,
            "6.1: best model in 60% of the time.",
            "sixty-percent-of-the-time/order_embeddings",
        ),
        says(
            24,
            "6.1: Table 2 shows better generalization.",
            *("better-in-every-column-of-table-2", "generalizes-better/order_embeddings"),
        ),
        uncheckable(
            25,
            "6.1: state of the art but for one model.",
            "it is about what others had published in 2016",
        ),
        uncheckable(
            26,
            "6.2: attentive reader on the CNN corpus, data and protocol of Cooijmans et al., "
            "normalized within the LSTM only (four sentences).",
            DONE,
        ),
        says(
            27,
            "6.2: gains of 1 do much better than gains of 0.1.",
            "gains-of-one-are-better/attentive_reader",
        ),
        uncheckable(
            28,
            "6.3: two models on BookCorpus, setup of Kiros et al., a checkpoint every 50,000 of "
            "1M iterations, five tasks (seven sentences).",
            DONE,
        ),
        says(
            29,
            "6.3: no significant difference of cost between the two models.",
            "no-significant-cost-per-step/recurrent_gpu",
        ),
        says(
            30,
            "6.3: a month of training improves all tasks but one.",
            "month-helps-all-but-one-task",
        ),
        uncheckable(
            31,
            "6.3: a sentence about performance that is cut off by a figure.",
            "what it said was lost when the text was extracted",
        ),
        uncheckable(32, "6.4: DRAW with 64 glimpses, 256 units, fixed binarization.", DONE),
        uncheckable(33, "6.5: handwriting, IAM-OnDB, architecture of Graves.", DONE),
        uncheckable(34, "6.6: MNIST, hidden layers only.", DONE),
        says(
            35,
            "6.7: in convolutional networks batch normalization is best, then layer normalization.",
            *("batch-beats-layer/convnet", "layer-beats-none/convnet"),
        ),
        uncheckable(36, "6.7: further research is needed.", "an opinion about future work"),
        uncheckable(37, "Section 7: what the paper introduced and analyzed.", ANNOUNCED),
        says(
            38,
            "Section 7: invariant to shifting and scaling the features of a case.",
            "invariant-to-a-shift-of-one-case",
        ),
        says(
            39,
            "Section 7: long sequences and small batches benefit most.",
            "long-sequences-and-small-batches-benefit-most/handwriting",
        ),
        uncheckable(40, "Supplement: LN and the equations of the LSTM with it.", DEFINITION),
        says(
            41,
            "Supplement: more robust to the scale of the input and of the parameters.",
            "gain-metric-ignores-the-scale-of-inputs",
        ),
    ),
)
