"""Every benchmark's test writes to a folder of its own and sees no published record."""

import pytest

from layernorm.lab.benchmarks.measure import case


@pytest.fixture(autouse=True)
def folders(folders):
    return folders


@pytest.fixture
def counted(monkeypatch):
    """The cases that are measured from now on."""
    measured, real = [], case.measure

    def measure(one, *args, **options):
        measured.append(one)
        return real(one, *args, **options)

    monkeypatch.setattr(case, "measure", measure)
    return measured
