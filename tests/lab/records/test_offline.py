"""Published records, what their comparisons come to, and stored verdicts: without any data."""

import socket

from layernorm.lab import claims, experiments, records
from layernorm.lab.claims.verdicts import Stored
from layernorm.lab.experiments.compare import recorded


def test_all_that_is_published_is_there_without_data_and_network(tmp_path, monkeypatch):
    def refuse(*where, **how):
        raise AssertionError(f"connects to {where}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path / "runs"))
    names = {run.config["experiment"] for run in records.runs()}
    assert set(experiments.NAMES) - names <= {"transformer"}  # its sweeps are still to come
    for name in names:
        assert len(records.load(name))
    for name in experiments.NAMES:
        found = recorded(experiments.get(name))
        assert not found or [one.verdict for one in found.values()]
    stored = Stored()
    verdicts = {claim.id: stored.finding(claim).verdict for claim in claims.all()}
    assert {"proved", "supported here"} <= set(verdicts.values())
    assert list((tmp_path / "data").iterdir()) == []
    assert not (tmp_path / "cache").exists()
