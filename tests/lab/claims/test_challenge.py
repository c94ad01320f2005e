"""Claims decided afresh, beside what is published: draws, runs and times."""

import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lab.experiments import toy_experiment
from typed import layernorm

from layernorm.lab import claims, records
from layernorm.lab.benchmarks import measure
from layernorm.lab.claims import Finding, challenge, experiments, levels
from layernorm.lab.claims.challenge import Answer
from layernorm.lab.claims.verdicts import Stored
from layernorm.lab.experiments.contrasts import Comparisons, Said
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.sweep import carry_out


@pytest.fixture
def real_claims():
    """The book's own claims by id, of before `toy` puts others in their place."""
    return BOOK


BOOK = {claim.id: claim for claim in claims.all()}


@pytest.fixture(autouse=True)
def toy(monkeypatch, toy):
    claims.all()
    monkeypatch.setattr("layernorm.lab.claims.registry._registry", {})
    monkeypatch.setattr("layernorm.lab.claims.verdicts.FILE", toy / "verdicts.json")
    return toy


def declared(id: str, check, kind: str = "property"):
    """A claim whose verdict is stored."""
    claim = claims.declare(
        id=id, statement="A statement.", kind=kind, chapter="01", rule="A rule.", check=check
    )
    Stored().save([(claim, claims.decide(id))], [claim])
    return claim


def test_a_property_is_searched_from_other_draws(toy):
    seen = []

    def check():
        seen.append(torch.rand(()).item())
        return Finding("held", "It holds.")

    declared("holds", check)
    answer = challenge.challenge("holds", root=toy)
    assert len(set(seen)) == 1 + len(challenge.DRAWS)
    assert (answer.agrees, answer.seeds) == (True, challenge.DRAWS)
    assert challenge.challenge("holds", (0, 7), root=toy).seeds == (0, 7)
    assert seen[-2] == seen[0]


def test_one_draw_that_breaks_a_property_is_what_is_told(toy):
    def check():
        holds = torch.initial_seed() != 3
        return Finding("held" if holds else "refuted", "On some draws.")

    declared("sometimes", check)
    assert challenge.challenge("sometimes", (1, 2, 4), root=toy).agrees
    answer = challenge.challenge("sometimes", root=toy)
    assert (answer.published.verdict, answer.fresh.verdict) == ("held", "refuted")


@pytest.fixture
def compared(monkeypatch, toy):
    """The toy's comparison as a claim, with published tuning and runs."""
    experiment = toy_experiment.EXPERIMENT
    outcome = carry_out(Sweep("toy", "book", ("none", "layer")), workers=ThreadPoolExecutor(1))
    assert not outcome.failed
    for profile in ("book", "book_tuning", "book_overfit"):
        files = [records.path(run.config) for run in outcome.done.values()]
        files = [file for file in files if file.parent.name == profile]
        records.publish(files, folder=toy / "published")
    plan = replace(experiment.comparisons, profile="book")
    said = Said("faster/toy", "A statement.")
    row = replace(plan.rows[0], claim=said)
    monkeypatch.setitem(experiments.ROWS, said.id, (experiment, plan, said, [row]))
    return declared(said.id, lambda: Finding("supported here", "It was."), "experiment")


def test_seeds_of_published_runs_are_no_replication(toy, compared, monkeypatch):
    there = [SimpleNamespace(config={"seed": 7}), SimpleNamespace(config={"seed": 9})]
    monkeypatch.setattr(challenge, "published_runs", lambda experiment, profile: there)
    with pytest.raises(ValueError, match="seeds: 7 have published runs; give seeds that nobody"):
        challenge.challenge(compared.id, (7, 8), root=toy / "fresh")
    assert not (toy / "fresh").exists()


def test_arms_are_run_with_fresh_seeds_at_the_published_rates(toy, compared):
    told = []
    answer = challenge.challenge(
        compared.id,
        root=toy / "fresh",
        workers=ThreadPoolExecutor(1),
        progress=lambda *about: told.append(about),
    )
    runs = records.table.own("toy", root=toy / "fresh")
    assert {run.config["seed"] for run in runs} == set(answer.seeds) == {2_000_000, 2_000_001}
    assert {run.config["profile"] for run in runs} == {"book"}
    with records.published_only():
        rates = {run.config["options"]["learning_rate"] for run in records.runs("toy", "book")}
    assert {run.config["options"]["learning_rate"] for run in runs} == rates
    assert len(told) == len(runs) == 4
    (values,) = answer.differences.values()
    assert tuple(values) == answer.seeds
    again = challenge.challenge(compared.id, root=toy / "fresh", workers=ThreadPoolExecutor(1))
    assert again == answer


@pytest.mark.parametrize(("margin", "count"), [(1e9, 3), (1e-9, 5)])
def test_the_spread_of_fresh_runs_plans_their_number(toy, compared, monkeypatch, margin, count):
    """Three at first, five at most, and the rates that tie are run, too."""
    experiment, plan, said, (row,) = experiments.ROWS[compared.id]
    monkeypatch.setattr("layernorm.lab.experiments.planning.stdev", lambda _: math.inf)  # a tie
    book = {"first": 3, "seeds": tuple(range(10, 15)), "tuning_seeds": (1000, 1001, 1002)}
    row = replace(row, margin=replace(row.margin, size=margin), family="primary")
    plan = replace(plan, rows=(row,))
    profiles = {"book": replace(experiment.profiles["book"], **book)}
    planned = replace(experiment, profiles=profiles, comparisons=plan)
    monkeypatch.setattr(toy_experiment, "EXPERIMENT", planned)
    monkeypatch.setitem(experiments.ROWS, said.id, (planned, plan, said, [row]))
    answer = challenge.challenge(compared.id, root=toy / "fresh", workers=ThreadPoolExecutor(1))
    assert answer.seeds == tuple(range(2_000_000, 2_000_000 + count))
    runs = records.table.own("toy", root=toy / "fresh")
    made = Counter(run.config["profile"] for run in runs if run.config["seed"] >= 2_000_000)
    assert made == {"book": 2 * count, "book_next_best": 2 * count}


def test_a_level_is_judged_by_the_fresh_runs_alone(toy, compared, monkeypatch):
    """Its experiment compares nothing among its arms: the published runs' verdict came once."""
    experiment = replace(toy_experiment.EXPERIMENT, comparisons=Comparisons(profile="book"))
    monkeypatch.setattr(levels, "LEVELS", ())
    level = levels.Level(
        *("low/toy", "A statement.", "01", lambda: experiment, ("layer",)),
        *("test_nll", "the test cross-entropy"),
        between=(0.1, 9.0),
        gated=False,
    )
    monkeypatch.setitem(challenge.LEVELS, level.id, level)
    seen = []
    monkeypatch.setattr(
        levels.Level,
        "finding",
        lambda level, found=None: seen.append(found) or judged(level, found),
    )
    published = declared(level.id, level.finding, "experiment")
    answer = challenge.challenge(published.id, (7, 8, 9), root=toy / "fresh", workers=ONE)
    assert seen[0] is None
    assert set(seen[-1].frame.seed) == {7, 8, 9}
    assert answer.fresh.table[0]["n"] == "3"


judged = levels.Level.finding
ONE = ThreadPoolExecutor(1)


def test_saved_answers_are_a_table(toy, compared):
    challenge.challenge(compared.id, root=toy / "fresh", workers=ONE).save(toy / "answers")
    declared("holds", lambda: Finding("held", "It holds."))
    challenge.challenge("holds", root=toy).save(toy / "answers")
    found = challenge.answers(toy / "answers")
    assert found["from"].to_dict() == {"faster/toy": "2 seeds", "holds": "5 draws"}
    assert found.loc["holds", ["published", "decided again"]].tolist() == ["held", "held"]
    assert found.processor.all()
    assert challenge.answers(toy / "nowhere").empty


def test_the_answers_in_the_repository_are_of_each_kind(real_claims):
    files = sorted((Path(__file__).parents[3] / "challenges").glob("*.json"))
    told = {answer["claim"]: answer for answer in map(json.loads, map(Path.read_text, files))}
    kinds = {(real_claims[id].kind, bool(answer["seeds"])) for id, answer in told.items()}
    assert kinds == {("property", True), ("experiment", True), ("experiment", False)}
    assert all(answer["fresh"]["verdict"] for answer in told.values())


def test_a_seed_of_the_tuning_is_not_fresh(toy, compared):
    with pytest.raises(ValueError, match="seed 1000 chooses the learning rates"):
        challenge.challenge(compared.id, (1000, 1001), root=toy)


def test_times_are_measured_again_and_read_alone(toy, monkeypatch):
    def check():
        runs = records.runs("bench_toy")
        return Finding("supported here", f"{len(runs)} times.")

    declared("quick/mlp_cpu", check, "experiment")
    case = type("Case", (), {"benchmark": "toy"})()

    def run(cases, root):
        config = {"experiment": "bench_toy", "profile": "cpu", "arm": "a", "method": "none"}
        result = {"final": {"seconds": 1.0}, "curves": {}}
        for each in cases:
            records.save(records.new({**config, "seed": 0, "options": {}}, result, {}), root)
            yield each, []

    monkeypatch.setattr(challenge, "_cases", lambda claim: (case,))
    monkeypatch.setattr(measure, "run", run)
    answer = challenge.challenge("quick/mlp_cpu", root=toy / "fresh")
    assert (answer.published.evidence, answer.fresh.evidence) == ("0 times.", "1 times.")
    with pytest.raises(ValueError, match="rests on times, which have none"):
        challenge.challenge("quick/mlp_cpu", (1,), root=toy)


@pytest.mark.parametrize(
    ("id", "benchmarks"),
    [
        ("no-significant-cost-per-step/recurrent_cpu", {"recurrent"}),
        ("slower-per-update/recurrent_cpu", {"recurrent"}),
        ("no-significant-cost-per-step/loop_cpu", {"recurrent"}),
        ("six-times-faster/packed_cpu", {"packed"}),
        ("compiles-five-times-faster/compile_cpu", {"compile"}),
        ("slower-per-update/mlp_cpu", {"training"}),
        ("slower-per-update/mnist", {"training"}),
        ("moments-slower-than-products/cpu", {"training"}),
    ],
)
def test_a_claim_about_times_knows_what_to_measure(real_claims, id, benchmarks):
    cases = challenge._cases(real_claims[id])
    assert {case.benchmark for case in cases} == benchmarks
    assert all(case.device == "cpu" for case in cases)


def test_what_cannot_be_measured_here_is_said(real_claims):
    with pytest.raises(claims.ClaimError, match="needs a machine with a GPU"):
        challenge._cases(real_claims["slower-per-update/gpu"])


def test_a_run_that_fails_is_told_in_one_line(toy, compared, monkeypatch):
    failure = type("Failure", (), {"reason": "no\nroom", "log": "a.log"})()
    failure.config = type("Config", (), {"arm": "layer"})()
    outcome = type("Outcome", (), {"failed": {"key": failure}, "done": {}})()
    monkeypatch.setattr(challenge, "carry_out", lambda *args, **options: outcome)
    refused = layernorm("challenge", compared.id, "--out", str(toy))
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[-1].endswith("layer failed: no room (log: a.log)")
    assert "Traceback" not in refused.output


def test_what_is_exploratory_cannot_be_challenged(toy, monkeypatch):
    found = Finding("exploratory", "It was.")
    claim = declared("x/toy", lambda: found, "experiment")
    monkeypatch.setattr(challenge.Stored, "finding", lambda self, claim: found)
    with pytest.raises(
        claims.ClaimError, match="claim 'x/toy' is exploratory: there is no verdict"
    ):
        challenge.challenge(claim.id, root=toy)


def test_what_has_no_verdict_cannot_be_challenged(toy):
    claims.declare(id="later", statement="A statement.", kind="experiment", chapter="14")
    with pytest.raises(claims.ClaimError, match="'later' is not yet tested"):
        challenge.challenge("later", root=toy)


def test_the_command_shows_both_verdicts_and_writes_the_answer(toy):
    declared("holds", lambda: Finding("held", "It holds.", numbers={"worst": 1e-16}))
    result = layernorm("challenge", "holds", "--seeds", "5,6", "--out", str(toy))
    assert result.exit_code == 0, result.output
    assert "Published:" in result.stdout
    assert "Here:" in result.stdout
    assert "the same verdict" in result.stdout
    answer = json.loads((toy / "holds.json").read_text())
    assert answer["seeds"] == [5, 6]
    assert answer["fresh"]["numbers"] == {"worst": 1e-16}
    assert answer["environment"]["versions"]["torch"] == torch.__version__
    refused = layernorm("challenge", "holds", "--seeds", "5,x")
    assert "seeds must be integers with commas, got '5,x'" in refused.stderr


def test_an_answer_is_kept_under_the_name_of_its_claim(toy):
    claim = declared("faster/some_place", lambda: Finding("held", "It holds."))
    found = Finding("held", "It holds.")
    assert Answer(claim, found, found).save(toy / "new").name == "faster_some_place.json"
