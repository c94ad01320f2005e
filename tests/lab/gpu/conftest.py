"""Results go to a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path / "runs"))
    nowhere = tmp_path / "none"
    monkeypatch.setattr("layernorm.lab.records.published.published_folder", lambda: nowhere)
    return tmp_path
