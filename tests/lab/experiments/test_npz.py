"""Files of arrays are whole; what becomes of other files is tested where they are read."""

import numpy as np
import pytest

from layernorm.lab.experiments import npz


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    file = tmp_path / "a.npz"
    npz.save(file, {"seed": 1}, {"x": np.arange(3)})
    monkeypatch.setattr("layernorm.lab.records.files.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        npz.save(file, {"seed": 2}, {"x": np.zeros(9)})
    assert [found.name for found in tmp_path.iterdir()] == ["a.npz"]
    about, arrays = npz.load(file, lambda *held: held, "arrays", "of.nobody")
    assert about == {"seed": 1}
    assert arrays["x"].tolist() == [0, 1, 2]
