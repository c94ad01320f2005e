"""What the paper and its summaries say, how each statement is checked, and the verdict.

A chapter declares its claims in `layernorm/lab/claims/chapter_NN.py`, or several files
`chapter_NN_topic.py`; they are found by their names. A complete one::

    import torch

    from layernorm import functional as F
    from layernorm.lab.claims import Finding, claim, declare


    def keeps_the_mean(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        return x / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()


    @claim(
        id="mean-of-output-is-zero",
        statement="Without gain and bias, the outputs of one case have mean zero.",
        said_by=("paper eq. 3", "summary B"),
        kind="property",
        chapter="03",
        rule="proved if |mean| < 1e-12 in float64 for 100 random cases of 1 to 64 units",
        sabotage=("layernorm.functional.layer_norm", keeps_the_mean),
    )
    def mean_of_output_is_zero() -> Finding:
        worst = 0.0
        for units in torch.randint(1, 65, (100,)).tolist():
            x = 3 + torch.randn(units, dtype=torch.float64)
            worst = max(worst, F.layer_norm(x, (units,)).mean().abs().item())
        return Finding(
            "proved" if worst < 1e-12 else "refuted",
            evidence=f"The largest mean is {'below' if worst < 1e-12 else 'above'} 1e-12.",
            numbers={"largest_mean": worst},
        )


    declare(  # no check yet: "not yet tested"
        id="converges-faster/handwriting", statement="…", said_by=("paper section 6.5",),
        kind="experiment", chapter="18",
    )
    declare(  # nothing could check it: "uncheckable"
        id="inspired-by-neuroscience", statement="…", said_by=("summary C",),
        kind="property", chapter="03", uncheckable="it is about the authors' motives",
    )

Rules for a check:

- It takes no arguments, computes (nothing typed by hand), takes less than 2 s on one core and
  reads no network. `decide` seeds torch, NumPy and `random` with 0 and restores their states, the
  default dtype and gradient mode afterwards. It needs torch and numpy alone, or imports what else
  it needs inside. An experiment's check reads `layernorm.lab.records`, where it sees published runs
  alone, and answers `Finding("not yet tested")` where `records.runs(name)` is empty. What compares
  arms is no check: it is a row of the experiment's plan (`experiments.contrasts`), and its claim is
  made from that row (`claims.experiments`).
- `evidence` is the same text on every machine: state a bound ("below 1e-12") or round until other
  processors and thread counts cannot change the digits; raw values go into `numbers`, which no
  page shows. Statements are plain text: write μ and σ, not TeX.
- Verdicts: a proof or property is `proved`, `refuted` or `conditional` (with
  `condition="eps = 0"`, shown as "Holds if eps = 0."); an experiment is `supported here`, `not
  better here`, `no difference here`, `opposite here`, `depends` or `inconclusive` (these two with
  `reason="…"`). Others are refused.
- Every proof and property names a `sabotage`, `(dotted target, mutant)`. The tests put the mutant
  in the target's place and require the check to finish with *another verdict*: to raise is not
  enough. As with `mock.patch`, the target is the place where the check looks the name up: call
  `F.layer_norm`, not a name imported from the module, or name your own module's attribute.
- One claim for each experiment a statement is about, `faster-per-update/mnist`, owned by the
  chapter of that experiment. Exactly one claim has an id.

Notebooks end with `claims.show(chapter="03")`, which looks well in the book, on GitHub and in a
terminal; `claims.table(chapter="03")` gives the same as a data frame.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from layernorm.lab.claims.render import Ledger
from layernorm.lab.claims.schema import (
    CHAPTERS,
    KINDS,
    NOT_YET_TESTED,
    UNCHECKABLE,
    VERDICTS,
    Claim,
    ClaimError,
    Finding,
)
from layernorm.lab.records import published_only

if TYPE_CHECKING:
    import pandas

__all__ = [
    "CHAPTERS",
    "KINDS",
    "VERDICTS",
    "Claim",
    "ClaimError",
    "Finding",
    "Ledger",
    "all",
    "claim",
    "decide",
    "declare",
    "get",
    "select",
    "show",
    "table",
]

_registry: dict[str, Claim] = {}


def declare(
    *,
    id: str,
    statement: str,
    said_by: str | Sequence[str],
    kind: str,
    chapter: str,
    rule: str | None = None,
    check: Callable[[], Finding] | None = None,
    uncheckable: str | None = None,
    sabotage: tuple[str, object] | None = None,
) -> Claim:
    """Adds a claim to the registry; without a check it is `not yet tested` or `uncheckable`.

    Raises:
        ClaimError: a field breaks the rules of `Claim`, or another claim has this id.
    """
    sources = (said_by,) if isinstance(said_by, str) else tuple(said_by)
    new = Claim(id, statement, sources, kind, chapter, rule, check, uncheckable, sabotage)
    old = _registry.get(id)
    if old is not None and _identity(old) != _identity(new):
        raise ClaimError(
            f"claim {id!r} is declared twice: for chapter {old.chapter} ({old.statement!r}) and "
            f"chapter {chapter} ({statement!r}); give one of them another id "
            "(or restart Python if this is one claim, edited and loaded again)"
        )
    _registry[id] = new
    return new


def _identity(claim: Claim) -> tuple:
    """Equal when a chapter file is merely executed again, as test collectors and reloads do."""
    name = getattr(claim.check, "__qualname__", None)
    fields = (claim.statement, claim.said_by, claim.kind, claim.chapter, claim.rule)
    return (*fields, claim.uncheckable, name)


def claim(
    *,
    id: str,
    statement: str,
    said_by: str | Sequence[str],
    kind: str,
    chapter: str,
    rule: str,
    sabotage: tuple[str, object] | None = None,
) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Decorates the function that decides a claim; arguments are the fields of `Claim`.

    Raises:
        ClaimError: a field breaks the rules of `Claim`, or another claim has this id.
    """

    def register(check: Callable[[], Finding]) -> Callable[[], Finding]:
        declare(
            id=id,
            statement=statement,
            said_by=said_by,
            kind=kind,
            chapter=chapter,
            rule=rule,
            check=check,
            sabotage=sabotage,
        )
        return check

    return register


def all() -> tuple[Claim, ...]:
    """Every claim, by chapter, in the order of declaration."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("chapter_") or module.name in ("experiments", "levels"):
            importlib.import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_registry.values(), key=lambda claim: claim.chapter))


def get(id: str) -> Claim:
    """The claim with this id.

    Raises:
        ClaimError: there is none; the message names the nearest ones.
    """
    known = {claim.id: claim for claim in all()}
    if id not in known:
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.6)
        near = near or [other for other in known if id in other][:3]
        hint = f"did you mean {', '.join(near)}?" if near else "`layernorm claims` lists them"
        raise ClaimError(f"there is no claim {id!r}; {hint}")
    return known[id]


def select(chapter: str | None = None, kind: str | None = None) -> tuple[Claim, ...]:
    """The claims of a chapter, of a kind, of both, or all.

    Raises:
        ClaimError: no such chapter or kind.
    """
    for name, value, known in (("chapter", chapter, CHAPTERS), ("kind", kind, KINDS)):
        if value is not None and value not in known:
            raise ClaimError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    return tuple(
        claim for claim in all() if chapter in (None, claim.chapter) and kind in (None, claim.kind)
    )


@contextmanager
def _same_start() -> Iterator[None]:
    """Fixed seeds and gradients on; puts back every global state a check may have changed."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    dtype = torch.get_default_dtype()
    torch.default_generator.manual_seed(0)  # the CPU's alone: a GPU's state stays as it is
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def decide(id: str) -> Finding:
    """Runs the check of a claim.

    Raises:
        ClaimError: there is no such claim, its check raised (the cause is chained), or what it
            returned is not a finding of the claim's kind.
    """
    claim = get(id)
    if claim.uncheckable is not None:
        return Finding(UNCHECKABLE, reason=claim.uncheckable)
    if claim.check is None:
        return Finding(NOT_YET_TESTED, evidence=f"Chapter {claim.chapter} will decide it.")
    try:
        with _same_start(), published_only():
            finding = claim.check()
    except Exception as error:
        raise ClaimError(
            f"the check of claim {id!r} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(finding, Finding):
        raise ClaimError(f"the check of claim {id!r} must return a Finding; got {finding!r}")
    if finding.verdict not in claim.verdicts():
        raise ClaimError(
            f"the check of claim {id!r} gave {finding.verdict!r}, but a claim of kind "
            f"{claim.kind!r} is one of {', '.join(claim.verdicts())}"
        )
    return finding


def show(chapter: str | None = None, kind: str | None = None) -> Ledger:
    """Decides the selected claims; the last line of a notebook's cell shows them.

    Raises:
        ClaimError: as `select` and `decide` do.
    """
    return Ledger([(claim, decide(claim.id)) for claim in select(chapter, kind)])


def table(chapter: str | None = None, kind: str | None = None) -> pandas.DataFrame:
    """Decides the selected claims; one row each: id, chapter, kind, statement, said_by, verdict,
    evidence (led by the condition or the reason where there is one).

    Raises:
        ClaimError: as `select` and `decide` do.
    """
    import pandas

    columns = ["id", "chapter", "kind", "statement", "said_by", "verdict", "evidence"]
    rows = []
    for claim, finding in show(chapter, kind):
        start = [claim.id, claim.chapter, claim.kind, claim.statement, ", ".join(claim.said_by)]
        rows.append([*start, finding.verdict, finding.sentence])
    return pandas.DataFrame(rows, columns=columns)
