"""Publishing records, and loading them."""

import json
import math
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from apart import python

from layernorm.lab import records
from layernorm.lab.records import RecordError
from layernorm.lab.records.environment import PRETENDED
from layernorm.lab.records.published import published as all_published

DEPENDS = ["layernorm.lab.records.record"]


def run(arm="layer", seed=0, error=3.0, profile="book", experiment="digits", **options):
    config = {"experiment": experiment, "profile": profile, "arm": arm, "method": "layer"}
    curves = {"loss": {"step": [0, 10, 20], "value": [2.5, 1 / 3, 1e-9 / 7]}}
    result = {"curves": curves, "final": {"error": error, "exact": 1 / 3}}
    timing = {"seconds_per_update": 0.5}
    return records.new({**config, "seed": seed, "options": options}, result, timing, DEPENDS)


def big(points: int, seed=0):
    config = {**run().config, "seed": seed}
    steps = list(range(points))
    noise = np.random.default_rng(seed).random((2, points))
    curves = {"loss": {"step": steps, "value": noise[0]}, "few": {"step": [0], "value": [1.0]}}
    return records.Record(config, {"curves": curves})


@pytest.fixture(autouse=True)
def published(folders):
    return folders / "published"


def publish(*runs, **how):
    paths = [records.save(record) for record in runs]
    files = records.publish(paths, **how)
    for path in paths:
        path.unlink()
    return files


def test_the_table_is_tidy():
    for record in (run(seed=1), run(seed=0, rate=0.1)):
        records.save(record)
    frame = records.load("digits")
    assert list(frame.columns) == [
        *("experiment", "profile", "arm", "method", "seed"),
        *("step", "seconds", "metric", "value", "options"),
    ]
    assert len(frame) == 2 * (3 + 2)
    first = frame[frame.seed == 0]
    assert first.metric.tolist() == ["loss"] * 3 + ["error", "exact"]
    np.testing.assert_array_equal(first.step, [0, 10, 20, math.nan, math.nan])
    np.testing.assert_array_equal(first.seconds, [0, 5, 10, math.nan, math.nan])
    np.testing.assert_array_equal(first.value, [2.5, 1 / 3, 1e-9 / 7, 3.0, 1 / 3])
    assert first.options.tolist() == [{"rate": 0.1}] * 5
    assert frame.dtypes[["step", "seconds", "value"]].eq(float).all()
    assert frame.seed.dtype == np.int64


def test_seconds_are_unknown_without_the_time_of_an_update():
    record = run()
    records.save(records.Record(record.config, record.result))
    frame = records.load("digits")
    assert frame.seconds.isna().all()
    assert frame.value.notna().all()


def test_own_runs_take_the_place_of_published_ones():
    publish(run(seed=0, error=1.0), run(seed=1, error=1.0), run(seed=1, error=5.0, profile="long"))
    records.save(run(seed=1, error=2.0))
    records.save(run(seed=2, error=2.0))
    frame = records.load("digits", profile="book")
    errors = frame[frame.metric == "error"]
    assert dict(zip(errors.seed, errors.value, strict=True)) == {0: 1.0, 1: 2.0, 2: 2.0}
    everything = records.load("digits")
    assert sorted(everything.profile.unique()) == ["book", "long"]


def test_experiments_whose_names_begin_alike_are_kept_apart():
    publish(run(), run(experiment="digits_wide"), run(profile="book_2"))
    assert records.load("digits", "book").experiment.unique().tolist() == ["digits"]
    assert records.load("digits", "book").profile.unique().tolist() == ["book"]


def test_what_is_not_there_is_refused_with_what_is(published):
    assert records.runs() == []
    with pytest.raises(RecordError, match="there is no record of digits; there are none"):
        records.load("digits")
    publish(run())
    with pytest.raises(RecordError, match="no record of digit; did you mean 'digits'"):
        records.load("digit")
    with pytest.raises(RecordError, match="no record of digits in profile 'paper'"):
        records.load("digits", "paper")


def test_a_published_file_shares_rounds_and_sorts(published):
    (file,) = publish(run("b", 1), run("b", 0), run("a", 10), run("a", 9))
    assert file == published / "digits-book.json"
    lines = file.read_text().splitlines()
    runs = [json.loads(line.rstrip(",")) for line in lines if line.startswith('{"config"')]
    order = [(r["config"]["arm"], r["config"]["seed"]) for r in runs]
    assert order == [("a", 9), ("a", 10), ("b", 0), ("b", 1)]
    assert sum("versions" in line for line in lines) == 1
    assert sum("[0,10,20]" in line for line in lines) == 1
    back = records.runs()[0]
    # Curves are rounded to six significant digits, final metrics not at all.
    assert back.result["curves"]["loss"]["value"] == [2.5, 0.333333, 1.42857e-10]
    assert back.result["final"] == {"error": 3.0, "exact": 1 / 3}
    original = run("a", 9)
    for part in ("config", "timing", "environment", "digest", "key"):
        assert getattr(back, part) == getattr(original, part)


def test_publishing_again_changes_nothing(published, monkeypatch):
    runs = [run(seed=seed) for seed in range(3)]
    (file,) = publish(*runs)
    before = file.read_bytes()
    monkeypatch.setattr("layernorm.lab.records.published.write", None)  # called: TypeError
    for again in (runs, runs[:1], reversed(runs)):
        publish(*again)
    assert file.read_bytes() == before


def test_a_new_run_is_one_new_line(published):
    (file,) = publish(run(seed=0), run(seed=2))
    before = file.read_text().splitlines()
    publish(run(seed=1))
    after = file.read_text().splitlines()
    assert len(after) == len(before) + 1
    assert len(set(before) - set(after)) == 1, "only the file's hash changes"


def test_replace_drops_what_is_not_published_now(published):
    publish(run(seed=0), run(seed=1), run(profile="long"))
    publish(run(seed=2), replace=True)
    assert [r.config["seed"] for r in records.runs("digits", "book")] == [2]
    assert len(records.runs("digits", "long")) == 1


def test_replace_keeps_what_is_used(published):
    publish(run(seed=0), run(seed=1), run(seed=2))
    asked = []

    def used(experiment, runs):
        asked.append((experiment, sorted(r.config["seed"] for r in runs)))
        return {r.key for r in runs if r.config["seed"] == 1}

    publish(run(seed=3), replace=True, used=used)
    assert asked == [("digits", [0, 1, 2, 3])]
    assert [r.config["seed"] for r in records.runs("digits", "book")] == [1, 3]


def test_folders_can_be_published(published, tmp_path):
    for record in (run(seed=0), run(profile="long"), run(experiment="other")):
        records.save(record)
    files = records.publish([tmp_path / "runs"])
    assert [file.stem for file in files] == ["digits-book", "digits-long", "other-book"]
    assert {file.suffix for file in files} == {".json"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="there is no run in"):
        records.publish([tmp_path / "empty"])
    with pytest.raises(RecordError, match="nothing to publish"):
        records.publish([])
    with pytest.raises(RecordError, match=r"there is no record missing\.json"):
        records.publish(["missing.json"])
    with pytest.raises(RecordError, match=r"digits-book\.json is not a record of a run"):
        records.publish([files[0]])


def test_a_dry_run_is_refused_by_name_and_nothing_written(published):
    real, dry = run(seed=0), run(seed=1)
    dry = replace(dry, environment={**dry.environment, "gpus": [PRETENDED]})
    with pytest.raises(RecordError, match="of a dry run, on a GPU that is not there") as error:
        publish(real, dry)
    assert str(error.value).startswith(str(records.save(dry)))
    assert "name only files of a run on a GPU" in str(error.value)
    assert not published.exists()


def test_a_big_sweep_is_refused_and_nothing_written(published, monkeypatch):
    monkeypatch.setattr("layernorm.lab.records.published.LIMIT", 50_000)
    (small,) = publish(run())
    before = small.read_bytes()
    with pytest.raises(RecordError) as error:
        publish(*[big(600, seed) for seed in range(10)], run(experiment="other"))
    assert "record 'loss' less often (10 runs of up to 600 points take" in str(error.value)
    assert "the limit is 50 kB" in str(error.value)
    assert [file.name for file in published.iterdir()] == ["digits-book.json"]
    assert small.read_bytes() == before


def test_a_sweep_of_the_size_the_book_has_fits(published):
    """Eight arms, five seeds, two curves of a hundred points: as large as an experiment's."""
    runs = []
    for seed in range(40):
        record = big(100, seed)
        curves = {"train": record.result["curves"]["loss"], "test": record.result["curves"]["loss"]}
        runs.append(records.Record(record.config, {"curves": curves}))
    (file,) = publish(*runs)
    assert file.stat().st_size < 125_000
    assert len(records.load("digits")) == 40 * 200


def test_the_records_in_the_package_are_whole():
    folder = resources.files("layernorm.lab.records") / "published"
    files = sorted(folder.glob("*.json"))
    assert files
    for file in files:
        assert file.stat().st_size <= records.LIMIT
        experiment, profile = file.stem.split("-")
        for record in all_published(experiment, profile, folder):
            assert (record.config["experiment"], record.config["profile"]) == (experiment, profile)


def test_published_runs_are_read_from_a_zip(tmp_path):
    """As package data that is no folder on disk."""
    script = f"""
import sys, zipfile
from pathlib import Path
import layernorm.lab.records
folder = Path(layernorm.__file__).parent
archive = {str(tmp_path / "package.zip")!r}
with zipfile.ZipFile(archive, "w") as target:
    for file in folder.rglob("*.py"):
        target.write(file, file.relative_to(folder.parent))
    for file in Path({str(tmp_path / "published")!r}).iterdir():
        target.write(file, "layernorm/lab/records/published/" + file.name)
for name in [name for name in sys.modules if name.startswith("layernorm")]:
    del sys.modules[name]
sys.path.insert(0, archive)
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
from layernorm.lab import records
assert records.__file__.startswith(archive), records.__file__
print(records.load("digits").value.sum())
try:
    records.publish(["x"])
except records.RecordError as error:
    print(error)
"""
    publish(run())
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    value, message = done.stdout.splitlines()
    assert float(value) == pytest.approx(2.5 + 0.333333 + 3 + 1 / 3)
    assert "are not a folder one can write to" in message
