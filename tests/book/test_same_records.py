"""Two sets of published records are compared run by run, value by value, on made-up records."""

import json
import subprocess

import pytest
import same_records

from layernorm.lab import records
from layernorm.lab.records import published

STEPS = {"s": [0, 10], "m": ["loss", "error"]}


def run(arm, seed, loss=0.5, seconds=0.1, **more):
    """A run as a published file has it."""
    final = {"loss": loss, "error": "NaN", **more.pop("final", {})}
    return {
        "config": {"arm": arm, "method": arm, "seed": seed, "options": {"rate": 1}, "data": None},
        "result": {
            "curves": {"loss": {"step": "s", "value": [2.0, loss]}},
            "final": {"metric": " ".join(final), "value": list(final.values())},
            "diverged_at": None,
        },
        "timing": {"seconds_per_update": seconds},
        **more,
    }


def write(folder, name, *runs):
    folder.mkdir(exist_ok=True, parents=True)
    metrics = {
        names: names.split() for names in (each["result"]["final"]["metric"] for each in runs)
    }
    document = {"shared": {"s": [0, 10], **metrics}, "runs": runs}
    (folder / f"{name}.json").write_text(json.dumps(document))
    return str(folder)


@pytest.fixture
def kinds(tmp_path):
    """Count the kinds of runs between two lists of them."""

    def count(before, now):
        old, new = (write(tmp_path / n, "toy-book", *of) for n, of in (("a", before), ("b", now)))
        found = same_records.compared(same_records.published(old), same_records.published(new))
        return {kind: len(keys) for kind, keys in found["toy-book"].items() if keys}

    return count


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        ({}, "the same"),
        ({"digest": "another", "environment": "elsewhere"}, "the same"),
        ({"loss": 0.5000001}, "other results"),
        ({"seconds": 0.2}, "other times alone"),
        ({"loss": 0.4, "seconds": 0.2}, "other results"),
        ({"final": {"more": 1.0}}, "the same and more"),
        ({"final": {"error": 3.0}}, "other results"),
    ],
)
def test_a_run_is_the_same_in_every_value_or_it_is_told(kinds, now, kind):
    assert kinds([run("layer", 0)], [run("layer", 0, **now)]) == {kind: 1}


def test_a_curve_with_other_steps_and_a_lost_metric_are_other_results(kinds):
    longer, diverged = run("layer", 0), run("layer", 0)
    longer["result"]["curves"]["loss"]["value"][0] = 2.5
    diverged["result"]["diverged_at"] = 10
    richer = run("layer", 0, final={"more": 1.0})
    assert kinds([run("layer", 0)], [longer]) == {"other results": 1}
    assert kinds([run("layer", 0)], [diverged]) == {"other results": 1}
    assert kinds([richer], [run("layer", 0)]) == {"other results": 1}


def test_runs_are_matched_by_their_configuration_in_any_order(kinds):
    before = [run("layer", 0), run("layer", 1, 0.7), run("none", 0)]
    now = [run("layer", 1, 0.7), run("layer", 0), run("none", 5)]
    now[0]["config"]["options"]["rate"] = 1.0  # as good as 1
    assert kinds(before, now) == {"the same": 2, "only before": 1, "only now": 1}


def test_renamed_sweeps_are_matched_by_the_names_given(tmp_path, capsys):
    before = write(tmp_path / "a", "toy-tuning", run("layer", 0))
    now = write(tmp_path / "b", "toy-book_tuning", run("layer", 0))
    with pytest.raises(SystemExit) as ended:
        same_records.main(before, now)
    assert "2 sweeps: 1 only before, 1 only now" in capsys.readouterr().out
    assert not ended.value.code
    with pytest.raises(SystemExit):
        same_records.main(before, now, "toy-tuning=toy-book_tuning")
    assert "toy-book_tuning: 1 the same\n1 sweeps: 1 the same" in capsys.readouterr().out


def test_a_change_is_named_and_ends_with_an_error(tmp_path, capsys):
    before = write(tmp_path / "a", "toy-book", run("layer", 0), run("none", 0))
    now = write(tmp_path / "b", "toy-book", run("layer", 0, 0.4), run("none", 0))
    with pytest.raises(SystemExit) as ended:
        same_records.main(before, now)
    config = {**run("layer", 0)["config"], "experiment": "toy", "profile": "book"}
    said = f"toy-book: 1 the same, 1 other results\n    other results: {records.key(config)}\n"
    assert capsys.readouterr().out.startswith(said)
    assert ended.value.code


def test_what_git_and_the_package_published_is_read(tmp_path, monkeypatch):
    """A revision, by a repository with one commit; the package's own format, by its own records."""
    folder = tmp_path / "old" / "records" / "published"
    write(folder, "toy-book", run("layer", 0))
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "One", "--no-gpg-sign"]):
        who = ("-c", "user.name=A", "-c", "user.email=a@b.example")
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert same_records.published("HEAD") == same_records.published(str(folder))
    own = same_records.published(str(published.published_folder()))["mixed_units-book"]
    assert own.keys() == {each.key for each in published.published("mixed_units", "book")}
