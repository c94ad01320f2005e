"""Claims that several sources name together, and reasons that recur."""

ADDING_AND_COPY = ("adding", "copy_memory")
BATCHES = ("digits_batch_1", "digits_batch_4", "digits_batch_128")
MNIST = ("mnist_batch_1", "mnist_batch_4", "mnist")
FASTER = (
    *(f"faster-than-plain/{name}" for name in (*BATCHES, *MNIST)),
    *(f"faster-per-update/{name}" for name in (*BATCHES, *MNIST)),
)
RECURRENT_FASTER = (
    *(f"faster-than-plain/{name}" for name in ADDING_AND_COPY),
    *(f"faster-per-update/{name}" for name in ADDING_AND_COPY),
)
BETTER_THAN_BATCH = (
    *(f"faster-than-batch/{batch}" for batch in (*BATCHES[1:], *MNIST[1:])),
    *(f"better-result-than-batch/{batch}" for batch in BATCHES[1:]),
)
TABLE_1 = ("table-1-row-batch", "table-1-row-weight", "table-1-row-layer")

DEFINITION = "a definition; the chapters follow it"
HISTORY = "it is about who did what first, or why"
DONE = "it tells what the authors did; their runs cannot be seen"
