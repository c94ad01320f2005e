"""Claims about what normalization costs an update, decided by records of `layernorm bench
training`, and one about what it asks of the machine, decided by counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.benchmarks.measure import Row, byte_model, counting
from layernorm.lab.claims import Finding, adversary, claim, declare
from layernorm.lab.claims.chapter_11 import split
from layernorm.lab.claims.checks import conditional, shared, timed
from layernorm.lab.experiments.judged import of_ratio, stands

SLOWER = 1.05  # benchmarks' margin: at most a twentieth longer is not slower
MUCH = 3.0  # times its share by arithmetic
FORWARD, BACKWARD = 8, 16  # operations for each normalized summed input, counted generously
PROFILES = {"cpu": "cpu", "gpu": "cuda"}  # of the records


def measured(where: str) -> list[Row]:
    """The recorded rows of a CPU or a GPU."""
    from layernorm.lab.benchmarks import training

    device = PROFILES[where]
    return [row for row in training.recorded(device) if row.device.startswith(device)]


def fastest(rows: Sequence[Row], method: str) -> list[Row]:
    """For each machine, model and shape the implementation of a method that takes least time."""
    best: dict[tuple, Row] = {}
    for row in rows:
        place = row.machine, row.options["model"], row.shape
        if row.method == method and row.ratio is not None:
            best[place] = min(row, best.get(place, row), key=lambda one: one.seconds)
    return list(best.values())


def place(row: Row) -> str:
    return f"{row.options['model']} {','.join(map(str, row.shape))} ({row.implementation})"


def said(rows: Sequence[Row]) -> str:
    """Each row's ratio with its interval, in words."""
    parts = [
        f"{place(row)} {row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]" for row in rows
    ]
    return f"Ratio of times to no normalization [95% interval]: {'; '.join(parts)}."


def table(
    rows: Sequence[Row], margins: Sequence[float], verdicts: Sequence[str]
) -> list[dict[str, str]]:
    """The evidence for each row's verdict, as the ledger shows it."""
    return [
        timed(
            place(row),
            *(row.ratio, row.ratio_low, row.ratio_high),
            *(row.options.get("processes", 1), f"{margin:.3g}", verdict),
        )
        for row, margin, verdict in zip(rows, margins, verdicts, strict=True)
    ]


def slower(rows: Sequence[Row], margin: float, says: str) -> Finding:
    """The verdict that all rows share: no normalization is better, or normalization not worse."""
    if not rows:
        return Finding("not yet tested")
    inverse = says == "better"  # of none
    found = [of_ratio(row.ratio_low, row.ratio_high, margin, says, inverse) for row in rows]
    shown = table(rows, [margin] * len(rows), found)
    return shared(found, said(rows), split(found), table=shown)


def of_model(rows: Sequence[Row], *models: str) -> list[Row]:
    return [row for row in rows if row.options["model"] in models]


RECORD = (
    "record bench_training, profile {profile}: a whole update ({models}, every shape) with the "
)
RECORD += "fastest implementation of layer normalization over one without normalization, 95% "
RECORD += "interval of the median of the ratios: "
SIDES = {
    "better": "the update without is faster by more than the margin, {:.2f}, in logarithms",
    "not worse": "the update with is not slower by more than the margin, {:.2f}, in logarithms",
}


MLPS = ("mlp", "digits")
FULLY_CONNECTED = "layer normalization slows down each update of a fully connected network."
OF_DIGITS = (
    "layer normalization slows down each update of a small fully connected network, two layers of "
    "128 units."
)
OF_MNIST = (
    "an update of the MNIST network, two layers of 1,000 units, takes longer with layer "
    "normalization."
)
NO_COST = "no-significant-cost-per-step/recurrent_gpu"
RECURRENT = (
    "layer normalization adds no significant cost to an update of a recurrent network, an LSTM."
)
for _id, _chapter, _where, _models, _says, _statement in (
    ("slower-per-update/mlp_cpu", "12", "cpu", ("digits",), "better", OF_DIGITS),
    ("slower-per-update/gpu", "12", "gpu", MLPS, "better", FULLY_CONNECTED),
    ("slower-per-update/mnist", "19", "cpu", ("mlp",), "better", OF_MNIST),
    (NO_COST, "12", "gpu", ("lstm",), "not worse", RECURRENT),
):
    declare(
        id=_id,
        statement=f"On a {_where.upper()}, {_statement}",
        kind="experiment",
        chapter=_chapter,
        rule=RECORD.format(profile=PROFILES[_where], models=" and ".join(_models))
        + SIDES[_says].format(SLOWER),
        check=lambda where=_where, models=_models, says=_says: slower(
            of_model(fastest(measured(where), "layer"), *models), SLOWER, says
        ),
    )


def share_of_arithmetic(shape: Sequence[int]) -> float:
    """Operations of the norms over those of the products, in an update of an mlp, whose first
    layer has no gradient for its input."""
    first, *others = (a * b for a, b in pairwise(shape[1:]))
    return (FORWARD + BACKWARD) * sum(shape[2:-1]) / (4 * first + 6 * sum(others))


def dearer_than_products(rows: Sequence[Row]) -> Finding:
    """Compare the norms' share of the time with their share of the arithmetic."""
    if not rows:
        return Finding("not yet tested")
    shares = [share_of_arithmetic(row.shape) for row in rows]
    evidence = f"The norms are {max(shares):.1%} of the arithmetic at most. {said(rows)}"
    found = [
        stands(row.ratio_low - 1, row.ratio_high - 1, (share, MUCH * share), "above")
        for row, share in zip(rows, shares, strict=True)
    ]
    shown = table(rows, [1 + MUCH * share for share in shares], found)
    return shared(found, evidence, split(found), table=shown)


for _where in ("cpu", "gpu"):
    declare(
        id=f"moments-slower-than-products/{_where}",
        statement=f"On a {_where.upper()}, normalizing takes much more time for each arithmetic "
        "operation than a matrix product does.",
        kind="experiment",
        chapter="12",
        rule=f"record bench_training, profile {PROFILES[_where]}, model mlp, every shape, fastest "
        "implementation of layer normalization: by how much it lengthens an update without norms "
        f"(95% interval), against its arithmetic ({FORWARD} operations forward and {BACKWARD} "
        "backward for each summed input) over that of the products (6 for each weight, 4 in the "
        f"first layer); supported here if every interval begins above {MUCH:g} times that share, "
        "opposite here if every one ends below the share, inconclusive if one does neither",
        check=lambda where=_where: dearer_than_products(
            of_model(fastest(measured(where), "layer"), "mlp")
        ),
    )


def intensity(function: Callable[..., Tensor], *inputs: Tensor) -> float:
    """Operations for each byte that a function must move: inputs and result, once each."""
    operations = counting.work(lambda: function(*inputs)).operations
    return operations / byte_model.traffic("forward", inputs, [function(*inputs)], [], [])


def normalize(x: Tensor, *gain_and_bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:], *gain_and_bias)


def by_products(x: Tensor, gain: float | Tensor = 1.0, bias: float | Tensor = 0.0) -> Tensor:
    """The same function, its moments taken by products with a matrix of ones."""
    ones = torch.full((x.shape[1], x.shape[1]), 1 / x.shape[1], device=x.device)
    wide = x.float()
    centered = wide - wide @ ones
    return (gain * centered / ((centered * centered) @ ones + 1e-5).sqrt() + bias).to(x.dtype)


def of_norm(cases: int, units: int, kind: torch.dtype, parts: int) -> float:
    """Operations a byte of layer normalization, with gain and bias if it has three parts."""
    forms = [(cases, units), (units,), (units,)][:parts]
    return intensity(normalize, *(torch.empty(*form, dtype=kind, device="meta") for form in forms))


def of_product(cases: int, inputs: int, units: int, kind: torch.dtype) -> float:
    forms = (cases, inputs), (inputs, units)
    return intensity(torch.mm, *(torch.empty(*form, dtype=kind, device="meta") for form in forms))


@claim(
    id="normalizing-moves-bytes-products-compute",
    statement="For each byte that it must move, layer normalization does fewer than three "
    "operations, however large the layer; a matrix product does a number that grows in proportion "
    "to the layer.",
    rule="operations counted, on tensors that have no values, in the definition and in a product, "
    "float64, float32, float16 and bfloat16, the norm with gain and bias and without. Refuted "
    "unless for layers of H = 8, 16, ..., 1024 and 65,536 units and as many cases, or 1, 2, 3 or "
    "100,000, the norm's number per byte is below 3 and differs by less than 10% over H = 32 to "
    "1024, and the product's doubles with H to 1% from 32 to 1024 for H/2, H and 2H cases and "
    "inputs; held if the norm's is below 3 at the adversary's sizes, 1, 2 and 3 units, too, and "
    "the product's doubles for its numbers of cases and inputs; else conditional",
    sabotage=("layernorm.lab.claims.chapter_12.normalize", by_products),
)
def normalizing_moves_bytes() -> Finding:
    kinds = torch.float64, torch.float32, torch.float16, torch.bfloat16
    wide, few = [2**k for k in range(5, 11)], adversary.SIZES

    def norms(sizes: Sequence[int]) -> list[list[float]]:
        return [
            [of_norm(cases or units, units, kind, parts) for units in sizes]
            for cases in (0, *few, 100_000)  # 0: as many as units
            for kind in kinds
            for parts in (1, 3)
        ]

    def doubles(cases: Callable[[int], int], inputs: Callable[[int], int]) -> bool:
        rows = [[of_product(cases(h), inputs(h), h, kind) for h in wide] for kind in kinds]
        return all(abs(b / a - 2) < 0.02 for row in rows for a, b in pairwise(row))

    usual, small = norms([*wide, 8, 16, 65_536]), norms(few)
    steady = all(max(row[:6]) < 1.1 * min(row[:6]) and max(row) < 3 for row in usual)
    shares = [lambda h: h // 2, lambda h: h, lambda h: 2 * h]
    grows = all(doubles(cases, inputs) for cases in shares for inputs in shares)
    fixed = [lambda _, n=n: n for n in few]
    always = all(doubles(n, shares[1]) and doubles(shares[1], n) for n in fixed)
    seen, worst = [x for row in usual for x in row], max(map(max, small))
    one = [[of_product(n or h, h, h, torch.float32) for h in (32, 1024)] for n in (0, 1)]
    return conditional(
        steady and grows,
        worst < 3 and always,
        "the layer has eight units or more, and the product about as many cases and inputs as the "
        "layer has units",
        f"From H = 8 layer normalization does {min(seen):.2f} to {max(seen):.2f} operations a "
        f"byte, by type of number, with gain and bias or not and by the number of cases; with 1 to "
        f"3 units up to {worst:.2f}. From H = 32 to 1024 a float32 product of H cases does "
        f"{one[0][0]:.0f} to {one[0][1]:.0f}, of one case {one[1][0]:.2f} to {one[1][1]:.2f}.",
    )
