"""Published records, what their comparisons come to, and stored verdicts: without any data."""

import socket

from layernorm.lab import claims, experiments, records
from layernorm.lab.claims.schema import EXPLORATORY, NOT_YET_TESTED, VERDICTS
from layernorm.lab.claims.verdicts import Stored
from layernorm.lab.experiments.report import recorded


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
    assert set(experiments.NAMES) <= names
    for name in names:
        assert len(records.load(name))
    for name in experiments.NAMES:
        experiment = experiments.get(name)
        decided = [recorded(experiment, plan) for plan in experiment.plans()]
        for found in filter(None, decided):
            assert all(one.difference.n > 1 for one in found.values() if one.difference)
        assert any(decided), name
    stored = Stored()
    for claim in claims.all():
        found = stored.finding(claim).verdict
        untested = claim.kind == "experiment" and found in (NOT_YET_TESTED, EXPLORATORY)
        assert untested or found in VERDICTS[claim.kind], claim.id
    assert list((tmp_path / "data").iterdir()) == []
    assert not (tmp_path / "cache").exists()
