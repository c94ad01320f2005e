"""Writing a text: the same strokes for the same seed, an end when the window has passed the text,
unknown characters refused, and weights that are read without running anything."""

import io
import json
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from layernorm.lab.data.handwriting import ALPHABET, LETTERS
from layernorm.lab.experiments import handwriting
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.handwriting import writing
from layernorm.lab.experiments.handwriting.model import build
from layernorm.lab.experiments.handwriting.writing import Pen, load, save, trained, write

SIZES = {"hidden": 8, "components": 2, "windows": 2, "advance": 0.2}


def pen(method="layer", **sizes) -> Pen:
    """An untrained network: its window moves, and its points are noise."""
    with seeded(0, torch.device("cpu")):
        network = build(SimpleNamespace(method=method, **{**SIZES, **sizes}))
    return Pen(network.eval(), torch.tensor([[60.0, 0.0], [250.0, 240.0]]), LETTERS)


@pytest.mark.parametrize("method", ["none", "layer"])
def test_the_same_seed_writes_the_same_strokes(method):
    model = pen(method)
    one, two, other = (write("abc de", 1.0, seed, model) for seed in (0, 0, 1))
    assert torch.equal(one.points, two.points)
    assert not torch.equal(one.points[:5], other.points[:5])
    places = np.concatenate(one.strokes())
    np.testing.assert_allclose(places, one.points[:, :2].double().cumsum(0))


def test_each_point_is_drawn_from_what_was_said_after_the_ones_before():
    """The network reads what was written, and says the same again."""
    model = pen()
    written = write("abc", 0.5, 3, model)
    offsets = (written.points[:, :2] - model.scale[0]) / model.scale[1]
    before = torch.tensor([[0.0, 0.0, 1.0]])
    x = torch.cat([before, torch.cat([offsets, written.points[:, 2:]], 1)[:-1]])
    text = model.network.one_hot[torch.tensor([[1, 2, 3, 0]])]
    with torch.no_grad():
        read, _ = model.network.steps(x[:, None], text, model.network.start(1))
    torch.testing.assert_close(read.y[:, 0], written.outputs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(read.phi[:, 0, :3], written.window, rtol=1e-4, atol=1e-6)


def test_writing_ends_where_a_stroke_would_begin_after_the_text_or_after_enough_points():
    model = pen()
    for seed in range(4):
        written = write("abab", 0.0, seed, model)
        assert len(written.points) < 4 * writing.PER_LETTER
        assert written.points[-1, 2] == 1
    assert len(write("ab" * 5, 0.0, 0, model).points) > len(write("ab", 0.0, 0, model).points)
    standing = pen(advance=1e-9)
    assert len(write("ab", 0.0, 0, standing).points) == 2 * writing.PER_LETTER


def test_a_large_bias_writes_what_is_most_likely():
    """For any seed: the mean of the component with the largest weight."""
    model = pen()
    one, two = (write("abc", 12.0, seed, model) for seed in (0, 1))
    torch.testing.assert_close(one.points[0, :2], two.points[0, :2], rtol=1e-3, atol=0.1)


def test_unknown_characters_are_refused_by_name():
    with pytest.raises(ValueError, match=re.escape("unknown character 'H'; there are ' abc")):
        write("Hello", model=pen())
    with pytest.raises(ValueError, match="unknown character '!', 'ß'"):
        write("aß!", model=pen())
    for text in ("", "  "):
        with pytest.raises(ValueError, match="text must have a character that is written, got"):
            write(text, model=pen())
    with pytest.raises(ValueError, match=r"bias must be at least 0, which is none, got -0\.5"):
        write("ab", -0.5, model=pen())


@pytest.mark.parametrize("method", ["none", "layer"])
def test_saved_weights_come_back_in_half_precision(method, tmp_path):
    model = pen(method)
    file = tmp_path / "w.npz"
    save(model, SimpleNamespace(method=method, **SIZES), file)
    back = load(file)
    assert back.letters == LETTERS
    assert torch.equal(back.scale, model.scale)
    for name, w in model.network.state_dict().items():
        torch.testing.assert_close(back.network.state_dict()[name], w, rtol=2**-10, atol=2**-14)


class Trap:
    """Raises where it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemError('executed')",)


def test_a_file_that_holds_a_pickle_is_refused_unread(tmp_path):
    file = tmp_path / "w.npz"
    with file.open("wb") as out:
        np.savez(out, about=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="no weights that `save` wrote"):
        load(file)
    file.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="no weights that `save` wrote"):
        load(file)


def test_broken_and_missing_files_are_refused_by_name(tmp_path):
    missing = tmp_path / "none.npz"
    with pytest.raises(FileNotFoundError, match=r"make them with: python -m layernorm\.lab"):
        load(missing)
    file = tmp_path / "w.npz"
    save(pen(), SimpleNamespace(method="layer", **SIZES), file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=re.escape(str(file))):
        load(file)
    held = dict(np.load(io.BytesIO(whole)))
    held["about"] = np.array(json.dumps({"sizes": {**SIZES, "method": "none"}, "letters": "ab"}))
    np.savez(file, **held)
    with pytest.raises(ValueError, match="no weights that `save` wrote"):
        load(file)


def test_a_pen_is_trained_by_the_plan():
    seen = []
    few = {"updates": 2, "evaluations": 1, "lines": 8, "writers": 2, "points": 20}
    values = {**few, "batch_size": 4, "hidden": 8, "held_out": 2}
    made = trained(progress=lambda step, _: seen.append(step), **values)
    assert seen == [2]
    start = trained(**{**values, "updates": 1, "learning_rate": 1e-12})
    assert not torch.equal(made.network.output.weight, start.network.output.weight)
    assert len(write("ab", model=made).points) > 0


def test_the_weights_that_ship():
    """At most 2 MB; they write lower-case letters, so that the window comes to the end."""
    assert writing.WEIGHTS.stat().st_size < 2_000_000
    there = load()
    assert set(there.letters) <= set(ALPHABET)
    written = handwriting.write("any text", bias=1.0, seed=0)
    again = handwriting.write("any text", bias=1.0, seed=0)
    assert torch.equal(written.points, again.points)
    assert len(written.points) < len("any text") * writing.PER_LETTER
    assert written.points.isfinite().all()
