"""The registry of claims: what the paper and its summaries say, a check of each, the verdict.

A chapter declares its claims in `layernorm/lab/claims/chapter_NN.py`, or several files
`chapter_NN_topic.py`; they are found by their names, which say the chapter. A complete one::

    from layernorm import functional as F
    from layernorm.lab.claims import Finding, adversary, claim
    from layernorm.lab.claims.checks import LAYER_NORM, draw, size


    @claim(
        id="mean-of-output-is-zero",
        statement="Without gain and bias, the outputs of one case have mean zero.",
        chapter="03",  # only where the file's name does not say it
        rule="held if |mean| < 1e-12 in float64 (times largest entry over spread) for 100 random "
        "cases of 64 units, climbs from the worst and the adversary's rows",
        # Mutant: the mean is not subtracted.
        sabotage=(LAYER_NORM, lambda x, n, **o: x / x.std(-1, correction=0, keepdim=True)),
    )
    def mean_of_output_is_zero() -> Finding:
        return adversary.searched(
            1e-12,
            "The largest mean is below 1e-12.",
            lambda a: size(F.layer_norm(a, (64,)).mean(-1)) / adversary.conditioning(a.detach()),
            [(draw(1, 64, mean=3.0),) for _ in range(100)],
            {name: (a,) for name, a in adversary.rows(64).items()},
        )

Rules for a check:

- It takes no arguments, computes (nothing typed by hand), takes less than 2 s on one core and
  reads no network. `decide` seeds torch, NumPy and `random` with 0 and restores their states, the
  default dtype and gradient mode afterwards; a challenge seeds otherwise, so what is drawn by a
  seed of its own takes it from `checks.seeds`. It needs torch and numpy alone, or imports what else
  it needs inside. An experiment's check reads `layernorm.lab.records`, where it sees published runs
  alone, and answers `Finding("not yet tested")` where `records.runs(name)` is empty. What compares
  arms is no check: it is a row of the experiment's plan (`experiments.contrasts`), and its claim is
  made from that row (`claims.experiments`).
- `evidence` is the same text on every machine: state a bound ("below 1e-12") or round until other
  processors and thread counts cannot change the digits; raw values go into `numbers`, which no
  page shows. Statements are plain text: write μ and σ, not TeX.
- A proof covers every case it speaks of and is `proved`. A property is a search, by random cases
  and the adversary, and `held`; a violation that is a tensor (`checks.size`) is climbed along its
  gradient, too. What trains a network is neither: it is a row of a study's plan. A text is a
  source's. Verdicts are those of `VERDICTS`; `checks` has the usual findings. `conditional` takes a
  `condition="eps = 0"`, shown as "Holds if eps = 0.", `inconclusive` and `depends` a `reason="…"`.
  A claim of an exploratory row is `exploratory`: it shows its intervals and stays in every count.
- Every proof, property and text names a `sabotage`, `(dotted target, mutant)`. The tests put the
  mutant in the target's place and require the check to finish with *another verdict*: to raise is
  not enough. As with `mock.patch`, the target is the place where the check looks the name up: call
  `F.layer_norm`, not a name imported from the module, or name your own module's attribute.
- A rule has no verdict that it cannot give: where one may be conditional, a world, in
  `tests/lab/claims/worlds`, is a mutant of what is tested under which the third verdict is found.
- Who says a claim stands in `sources/*.yaml`: statements of the paper and of its summaries name the
  claims that decide them. A claim that none names is this book's.
- One claim for each experiment a statement is about, `faster-per-update/mnist`, owned by the
  chapter of that experiment. Exactly one claim has an id.

Notebooks end with `claims.show(chapter="03")`, which looks well in the book, on GitHub and in a
terminal.
"""

from __future__ import annotations

from layernorm.lab.claims.registry import all, claim, decide, declare, get, select
from layernorm.lab.claims.render import Decided
from layernorm.lab.claims.schema import CHAPTERS, KINDS, VERDICTS, Claim, ClaimError, Finding

__all__ = [
    "CHAPTERS",
    "KINDS",
    "VERDICTS",
    "Claim",
    "ClaimError",
    "Decided",
    "Finding",
    "all",
    "claim",
    "decide",
    "declare",
    "get",
    "select",
    "show",
]


def show(chapter: str | None = None, kind: str | None = None) -> Decided:
    """Decides the selected claims; the last line of a notebook's cell shows them.

    Raises:
        ClaimError: as `select` and `decide` do.
    """
    return Decided([(claim, decide(claim.id)) for claim in select(chapter, kind)])
