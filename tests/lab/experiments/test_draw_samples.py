"""DRAW: the pictures that come with the package are those of recorded runs."""

import numpy as np
import pytest
from lab.experiments.drawing import EXPERIMENT

from layernorm.lab.experiments.draw import samples


@pytest.mark.parametrize("arm", samples.ARMS)
def test_the_pictures_are_those_of_a_recorded_run(arm):
    """Its bound is the record's to 2 nats, the plan's margin: a run on another processor may end a
    little elsewhere, a run of other options does not."""
    made, run = samples.load()[arm], samples.recorded(arm)
    options = run.config["options"]
    assert (made.seed, made.learning_rate) == (run.config["seed"], options["learning_rate"])
    assert made.bound == pytest.approx(run.result["final"]["test_bound"], abs=2.0)
    assert made.pictures.shape == (options["glimpses"], samples.PICTURES, 28, 28)


@pytest.mark.parametrize("arm", samples.ARMS)
def test_the_last_canvas_has_strokes_and_they_differ(arm):
    """A collapsed model, or one that has learned nothing, draws the same gray thing each time."""
    last = samples.load()[arm].pictures[-1].astype(float) / 255
    assert last.min() < 0.05
    assert last.max() > 0.9
    assert last.std(0).max() > 0.25


def test_generating_again_gives_the_same_and_a_file_keeps_it(tmp_path):
    config = EXPERIMENT.config(
        "book", "layer", 0, updates=3, evaluations=1, learning_rate=1e-3, held_out=20
    )
    made, again = samples.generate(config), samples.generate(config)
    assert (made.pictures == again.pictures).all()
    assert made.bound == again.bound
    file = tmp_path / "s.npz"
    samples.save({"layer": made}, file)
    there = samples.load(file)["layer"]
    assert (there.pictures == made.pictures).all()
    for name in ("seed", "learning_rate", "bound"):
        assert getattr(there, name) == getattr(made, name)
    assert [f.name for f in tmp_path.iterdir()] == ["s.npz"]


def test_an_arm_without_a_record_is_refused():
    with pytest.raises(ValueError, match="arm must have a recorded run, 'nobody' has none"):
        samples.recorded("nobody")


def test_missing_and_foreign_files_are_refused(tmp_path):
    missing, other = tmp_path / "none.npz", tmp_path / "other.npz"
    with pytest.raises(FileNotFoundError, match=r"python -m layernorm\.lab\.experiments\.draw"):
        samples.load(missing)
    np.savez(other, a=np.zeros(3))
    with pytest.raises(ValueError, match="no pictures that `save` wrote"):
        samples.load(other)
    other.write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="no pictures that `save` wrote"):
        samples.load(other)
