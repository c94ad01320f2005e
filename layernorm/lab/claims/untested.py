"""Claims that later chapters will decide, each as a row of its experiment's plan."""

from layernorm.lab.claims import declare

UNTESTED = {
    "18": {
        "faster-per-update/handwriting": "Layer normalization makes a network that writes by hand "
        "learn in fewer updates.",
        "better-result/handwriting": "A network that writes by hand ends with a better likelihood "
        "if it is layer-normalized.",
        "long-sequences-and-small-batches-benefit-most/handwriting": "Long sequences and small "
        "batches benefit the most from layer normalization.",
    },
}

for _chapter, _claims in UNTESTED.items():
    for _id, _statement in _claims.items():
        declare(id=_id, statement=_statement, kind="experiment", chapter=_chapter)
