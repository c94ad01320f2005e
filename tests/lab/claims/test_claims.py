"""The claims' rules, the registry, and every registered claim."""

import math
import random
import re
import textwrap
from dataclasses import astuple
from unittest import mock

import numpy as np
import pytest
import torch

from layernorm.lab import claims
from layernorm.lab.claims import KINDS, VERDICTS, Claim, ClaimError, Finding, adversary
from layernorm.lab.claims import registry as registry_module
from layernorm.lab.claims.render import _BADGES, Decided
from layernorm.lab.claims.verdicts import Stored
from layernorm.lab.records import staleness

REGISTERED = claims.all()
STORED = Stored()
PROVABLE = [claim for claim in REGISTERED if claim.kind != "experiment"]
GOOD = {
    "id": "some-claim",
    "statement": "Something holds.",
    "said_by": ("paper section 3",),
    "kind": "property",
    "chapter": "03",
    "rule": "held if it holds",
    "check": lambda: Finding("held", "It holds."),
}


@pytest.fixture
def registry(monkeypatch):
    """An empty registry, so that a test may declare what it likes."""
    empty: dict[str, Claim] = {}
    monkeypatch.setattr(registry_module, "_registry", empty)
    return empty


def by_id(claim):
    return claim.id


def words(finding: Finding) -> list[str]:
    """Its texts without numbers, whose last digits may be those of another machine."""
    return [re.sub(r"[-−\d.,]*\d(e[-+]?\d+)?", "#", text or "") for text in astuple(finding)[1:4]]


# Every registered claim


@pytest.mark.parametrize("claim", REGISTERED, ids=by_id)
def test_the_stored_verdict_is_the_one_that_the_check_finds(claim):
    """If one of them is another now: `layernorm claims --check --save`."""
    stored, found = STORED.finding(claim), claims.decide(claim.id)
    assert found.verdict == stored.verdict
    assert words(found) == words(stored)
    assert found.verdict in claim.verdicts() if claim.check else found.verdict == "not yet tested"


def test_only_registered_claims_have_stored_verdicts():
    """In whatever order the modules of claims were imported."""
    assert sorted(STORED.verdicts) == sorted(claim.id for claim in REGISTERED)


@pytest.mark.parametrize("claim", PROVABLE, ids=by_id)
def test_can_fail(claim):
    """A mutant in the place of what it tests changes the verdict."""
    if claim.check is None:
        pytest.skip("it has no check")
    assert claim.sabotage is not None, f"{claim.id} names no sabotage"
    before = STORED.finding(claim)
    with mock.patch(*claim.sabotage):
        after = claims.decide(claim.id)  # raises if the mutant makes the check raise
    assert after.verdict != before.verdict, f"{claim.id} does not notice its sabotage"


@pytest.mark.parametrize("claim", [c for c in PROVABLE if c.kind == "property"], ids=by_id)
def test_a_property_meets_the_adversary(claim):
    """Unless it is refuted, for which any case will do; one that counts operations meets sizes."""
    name = claim.check.__module__, claim.check.__qualname__
    reached = staleness.code().reach([name]).definitions
    met = {name for module, name in reached if module == adversary.__name__}
    cases = {"rows", "matrices", "gates", "searched", "climb", "ascend"}
    cases |= {"SIZES"} if claim.id == "normalizing-moves-bytes-products-compute" else set()
    assert met & cases or STORED.finding(claim).verdict == "refuted"


# What may be declared


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "Some-Claim"}, "id must be kebab-case"),
        ({"id": "some_claim"}, "id must be kebab-case"),
        ({"id": "some-claim/"}, "id must be kebab-case"),
        ({"id": "a/b/c"}, "id must be kebab-case"),
        ({"statement": " "}, "statement must be one sentence"),
        ({"said_by": ()}, "said_by must be at least one of the forms 'paper abstract'"),
        ({"said_by": ("summary F",)}, "got 'summary F'"),
        ({"said_by": ("paper section 3", "paper eq 4")}, "got 'paper eq 4'"),
        ({"said_by": ("paper section 3 and more",)}, "said_by must be one of the forms"),
        (
            {"kind": "theorem"},
            "kind must be one of proof, property, experiment, text; got 'theorem'",
        ),
        ({"chapter": "3"}, "chapter must be two digits from '01' to '22'; got '3'"),
        ({"chapter": "23"}, "chapter must be two digits"),
        ({"rule": None}, "rule must be what decides the verdict"),
        ({"rule": ""}, "rule must be what decides the verdict"),
        ({"sabotage": ("layer_norm", None)}, "sabotage must be ('package.module.name', mutant)"),
    ],
)
def test_bad_claims_are_refused(change, message):
    with pytest.raises(ClaimError) as error:
        Claim(**{**GOOD, **change})
    assert message in str(error.value)
    assert f"claim {change.get('id', 'some-claim')!r}: " in str(error.value)


@pytest.mark.parametrize(
    "source",
    [
        *("paper abstract", "paper section 5.2.1", "paper eq. 4", "paper eq. 20-22"),
        *("paper table 1", "paper figure 2", "paper supplement", "summary A", "summary E"),
        "this book",
    ],
)
def test_who_may_have_said_it(source):
    assert Claim(**{**GOOD, "said_by": (source,)}).said_by == (source,)


@pytest.mark.parametrize("id", ["a", "faster-per-update/mnist", "rows-1-and-2/order_embeddings"])
def test_good_ids(id):
    assert Claim(**{**GOOD, "id": id}).id == id


@pytest.mark.parametrize(
    ("finding", "message"),
    [
        ({"verdict": "true"}, "verdict 'true' is none of proved, refuted, conditional, held, supp"),
        ({"verdict": "proved"}, "verdict 'proved' needs evidence="),
        ({"verdict": "conditional", "evidence": "x"}, "'conditional' needs condition="),
        ({"verdict": "conditional", "evidence": "x", "condition": ""}, "needs condition="),
        ({"verdict": "inconclusive"}, "'inconclusive' needs reason="),
        ({"verdict": "depends", "evidence": "x"}, "'depends' needs reason="),
        ({"verdict": "proved", "evidence": "x", "condition": "y"}, "takes no condition, got 'y'"),
        ({"verdict": "refuted", "evidence": "x", "reason": "y"}, "takes no reason, got 'y'"),
    ],
)
def test_bad_findings_are_refused(finding, message):
    with pytest.raises(ClaimError) as error:
        Finding(**finding)
    assert message in str(error.value)


def test_numbers_are_what_float_accepts():
    numbers = {"tensor": torch.tensor(0.5), "numpy": np.float32(2), "int": 3, "nan": math.nan}
    found = Finding("proved", "x", numbers=numbers).numbers
    assert [type(value) for value in found.values()] == [float] * 4
    np.testing.assert_array_equal(list(found.values()), [0.5, 2.0, 3.0, math.nan])


OPEN = {"exploratory", "not yet tested"}  # what an experiment may be, and is no verdict


def finding(verdict: str) -> Finding:
    reason = "Few seeds." if verdict in ("inconclusive", "depends") else None
    condition = "eps = 0" if verdict == "conditional" else None
    return Finding(verdict, "Evidence.", condition, reason)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_its_verdicts_and_no_others(kind, registry):
    for verdict in _BADGES:
        fields = {**GOOD, "id": verdict.replace(" ", "-"), "kind": kind}
        claims.declare(**{**fields, "check": lambda verdict=verdict: finding(verdict)})
    allowed = {*VERDICTS[kind], *(OPEN if kind == "experiment" else ())}
    for verdict in _BADGES:
        id = verdict.replace(" ", "-")
        if verdict in allowed:
            assert claims.decide(id).verdict == verdict
        else:
            with pytest.raises(ClaimError, match=f"gave '{verdict}', but a claim of kind"):
                claims.decide(id)


# The registry


def test_an_id_is_declared_once(registry):
    claims.declare(**GOOD)
    claims.declare(**GOOD)  # the same file executed again
    assert len(registry) == 1
    with pytest.raises(ClaimError, match=r"'some-claim' is declared twice: for chapter 03 .* 04"):
        claims.declare(**{**GOOD, "chapter": "04"})
    with pytest.raises(ClaimError, match="declared twice"):
        claims.declare(**{**GOOD, "check": test_good_ids})


def test_ids_are_unique_and_sorted_by_chapter():
    ids = [claim.id for claim in REGISTERED]
    assert len(set(ids)) == len(ids)
    assert [claim.chapter for claim in REGISTERED] == sorted(c.chapter for c in REGISTERED)


def test_chapter_files_are_found(registry, tmp_path, monkeypatch):
    source = (
        "from layernorm.lab.claims import declare\n"
        "declare(id='found', statement='It is.', kind='proof', chapter='07')\n"
    )
    (tmp_path / "chapter_07_found.py").write_text(source)
    (tmp_path / "helper.py").write_text("raise AssertionError('no chapter')")
    monkeypatch.setattr(registry_module, "FOLDER", str(tmp_path))
    monkeypatch.setattr(claims, "__path__", [str(tmp_path)])
    assert [claim.id for claim in claims.all()] == ["found"]
    assert claims.get("found").said_by == ("this book",)


def test_selection(registry):
    for number, kind in (("03", "proof"), ("03", "property"), ("01", "proof")):
        claims.declare(**{**GOOD, "id": f"{kind}-{number}", "chapter": number, "kind": kind})
    assert [c.id for c in claims.select()] == ["proof-01", "proof-03", "property-03"]
    assert [c.id for c in claims.select(chapter="03")] == ["proof-03", "property-03"]
    assert [c.id for c in claims.select("03", "proof")] == ["proof-03"]
    assert claims.select("22") == ()
    with pytest.raises(ClaimError, match=r"chapter must be one of 01, .*; got '3'"):
        claims.select(chapter="3")
    with pytest.raises(ClaimError, match=r"kind must be one of proof, .*; got 'law'"):
        claims.select(kind="law")


def test_an_unknown_id_suggests_the_nearest(registry):
    claims.declare(**GOOD)
    with pytest.raises(ClaimError, match=r"no claim 'some-klaim'; did you mean some-claim\?"):
        claims.decide("some-klaim")
    with pytest.raises(ClaimError, match="no claim 'xyz'; `layernorm claims` lists them"):
        claims.get("xyz")


def test_the_example_of_the_documentation_works(registry):
    """The literal block of the package's docstring, with its sabotage."""
    block = claims.__doc__.partition("::\n")[2].partition("\nRules")[0]
    exec(textwrap.dedent(block), {"__name__": "example"})
    assert [claims.decide(id).verdict for id in registry] == ["held"]
    with mock.patch(*claims.get("mean-of-output-is-zero").sabotage):
        assert claims.decide("mean-of-output-is-zero").verdict == "refuted"


# Deciding


def test_deciding_leaves_no_trace_and_starts_the_same_everywhere(registry):
    drawn = []

    def check():
        drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))  # noqa: NPY002
        drawn.append((torch.get_default_dtype(), torch.is_grad_enabled()))
        torch.set_default_dtype(torch.float64)
        raise ArithmeticError("after the change")

    claims.declare(**{**GOOD, "check": check})
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    states = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    for _ in range(2):
        with torch.no_grad(), pytest.raises(ClaimError, match="'some-claim' raised ArithmeticErr"):
            claims.decide("some-claim")
        assert torch.get_default_dtype() == torch.float32
        assert torch.equal(torch.get_rng_state(), states[0])
        np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
        torch.rand(1), np.random.rand()  # noqa: NPY002
        states = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    assert drawn[0] == drawn[2]
    assert drawn[1] == drawn[3] == (torch.float32, True)
    # Apart, since the type checks of the test run draw from Python's generator themselves.
    random.seed(12345)
    state = random.getstate()
    with registry_module._same_start():
        random.random()
    assert random.getstate() == state


def test_a_check_must_return_a_finding(registry):
    claims.declare(**{**GOOD, "check": lambda: True})
    with pytest.raises(ClaimError, match="check of claim 'some-claim' must return a Finding; got"):
        claims.decide("some-claim")


def test_claims_without_a_check(registry):
    fields = {name: value for name, value in GOOD.items() if name not in ("check", "rule")}
    claims.declare(**fields)
    assert claims.decide("some-claim").verdict == "not yet tested"
    assert claims.decide("some-claim").sentence == "Chapter 03 will decide it."


def test_a_check_sees_published_runs_alone(registry, tmp_path, monkeypatch):
    from layernorm.lab import records

    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path))
    config = {"experiment": "mine", "profile": "p", "arm": "a", "method": "none", "seed": 0}
    records.save(records.Record(config, {"final": {"error": 1.0}}))
    seen = []

    def check():
        seen.extend(records.runs("mine"))
        return Finding("held", "It holds.")

    claims.declare(**{**GOOD, "check": check})
    claims.decide("some-claim")
    assert len(records.runs("mine")) == 1
    assert seen == []


# Showing


def test_the_ledger_shows_statements_and_evidence(registry):
    claims.declare(**{**GOOD, "check": lambda: finding("conditional")})
    claims.declare(**{**GOOD, "id": "other", "chapter": "04", "said_by": "summary A"})
    ledger = claims.show(chapter="03")
    assert [claim.id for claim, _ in ledger] == ["some-claim"]
    for shown in (repr(ledger), ledger._repr_html_()):
        assert GOOD["statement"] in shown
        for piece in ("Holds if eps = 0. Evidence.", "some-claim", "conditional"):
            assert piece in shown
    assert repr(claims.show(chapter="05")) == "no claims"


def contrast_with_white(color: str) -> float:
    """WCAG 2.1's contrast ratio."""
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return 1.05 / (float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)


def test_badges_are_readable_and_texts_escaped():
    assert set(_BADGES) == {v for vs in VERDICTS.values() for v in vs} | OPEN
    assert min(contrast_with_white(color) for _, color in _BADGES.values()) > 4.5
    claim = Claim(**{**GOOD, "statement": "a < b & <script>"})
    html = Decided([(claim, Finding("proved", "x < y"))])._repr_html_()
    assert "a &lt; b &amp; &lt;script&gt;" in html
    assert "x &lt; y" in html
