"""Claims that later chapters will decide, each as a row of its experiment's plan."""

from layernorm.lab.claims import declare

UNTESTED = {
    "14": {
        "faster-per-update/order_embeddings": "Layer normalization makes order-embeddings learn in "
        "fewer updates, by R@1, R@5 and R@10.",
        "sixty-percent-of-the-time/order_embeddings": "Order-embeddings with layer normalization "
        "reach their best validation model in 60% of the time of those without.",
        "generalizes-better/order_embeddings": "Layer normalization improves the generalization of "
        "order-embeddings.",
    },
    "16": {
        "faster-per-update/skip_thoughts": "Layer normalization makes skip-thoughts learn in fewer "
        "updates, judged by the tasks that use its vectors.",
        "better-result/skip_thoughts": "Skip-thoughts with layer normalization end with better "
        "results in the tasks that use its vectors.",
    },
    "17": {
        "twice-as-fast/draw": "DRAW with layer normalization learns almost twice as fast as DRAW "
        "without.",
        "better-result/draw": "After 200 epochs DRAW with layer normalization has a better bound, "
        "by 0.27 nats.",
    },
    "21": {
        "normalizing-first-needs-no-warm-up/transformer": "A transformer that normalizes before "
        "each block has moderate gradients at the start and needs no warm-up; one that normalizes "
        "after each block does.",
    },
}

for _chapter, _claims in UNTESTED.items():
    for _id, _statement in _claims.items():
        declare(id=_id, statement=_statement, kind="experiment", chapter=_chapter)
