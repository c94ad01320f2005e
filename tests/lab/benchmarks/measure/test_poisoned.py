"""An implementation that makes a GPU useless to its process: who did it is kept, and another
process measures the others. The device is the processor, which the tests call useless."""

import json
from dataclasses import replace

import pytest
from lab.benchmarks.benching import files, rows_of, ticking, tiny

from layernorm.lab.benchmarks.measure import Poisoned, case, measure, resume
from layernorm.lab.benchmarks.measure.timing import CpuTimer

ILLEGAL = "CUDA error: an illegal memory access was encountered"


class Device:
    """Useless to a process from a bad call on."""

    def __init__(self, monkeypatch):
        self.useless = False
        for module in (case, resume):
            monkeypatch.setattr(module, "alive", lambda device: not self.useless)

    def used(self, function, bad=lambda: True):
        def implementation(**inputs):
            self.useless = self.useless or bad()
            if self.useless:
                raise RuntimeError(ILLEGAL)
            return function(**inputs)

        return implementation


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def with_bad(plan, device, *names, bad=lambda: True):
    """The plan's first case with implementations that make the device useless."""
    first, *others = plan
    known = first.source.implementations
    found = {name: device.used(f, bad if name in names else lambda: False)
             for name, f in known.items()}  # fmt: skip
    return (replace(first, source=replace(first.source, implementations=found)), *others)


def test_another_process_measures_the_others(device, counted, folders):
    plan = with_bad(tiny((2, 32), (3, 32)), device, "torch")
    with pytest.raises(Poisoned, match="torch made the GPU useless to this process: failed: Runti"):
        rows_of(plan)
    assert files(folders) == {}
    (marker,) = folders.rglob("*.begun")
    culprits = json.loads(marker.read_text())["culprits"]
    assert culprits == {"torch": f"crashed: RuntimeError: {ILLEGAL}"}
    assert resume.known(plan) == [[], []]

    device.useless = False  # another process
    rows = rows_of(plan)
    assert [one.shape[0] for one in counted] == [2, 3, 2]
    assert counted[-1].implementations == ("definition",)
    assert {(row.shape[0], row.implementation): row.status for row in rows} == {
        (3, "definition"): "measured",
        (3, "torch"): "measured",
        (2, "definition"): "measured",
        (2, "torch"): f"crashed: RuntimeError: {ILLEGAL}",
    }
    assert len(rows_of(plan)) == 4
    assert len(counted) == 3  # nothing is tried again with the same code
    assert not list(folders.rglob("*.begun"))


def test_each_process_finds_one(device, counted, folders):
    plan = with_bad(tiny(), device, "definition", "torch")
    for _ in range(2):
        device.useless = False
        with pytest.raises(Poisoned):
            rows_of(plan)
    device.useless = False
    assert [row.status for row in rows_of(plan)] == [f"crashed: RuntimeError: {ILLEGAL}"] * 2
    assert len(counted) == 2


def test_a_case_that_killed_a_process_and_then_poisons_one_is_still_to_be_measured(device, folders):
    plan = with_bad(tiny(), device, "torch")
    resume._Book(plan, None).mark(plan[0], {})  # left by a process that was killed
    with pytest.raises(Poisoned):
        rows_of(plan)
    assert len(files(folders)) == 2  # crashed, until it is known who did it
    assert resume.known(plan) == [[]]
    device.useless = False
    status = {row.implementation: row.status for row in rows_of(plan)}
    assert status == {"definition": "measured", "torch": f"crashed: RuntimeError: {ILLEGAL}"}
    assert len(resume.known(plan)[0]) == 2


def test_one_that_ends_the_process_while_it_is_timed_is_named(device):
    calls = []

    class Seen(CpuTimer):
        at = None

        def seconds(self, call, repeats):
            self.at = call
            return super().seconds(call, repeats)

    def bad():
        calls.append(1)
        return len(calls) > 2  # once to be judged, once to be timed

    (one,) = with_bad(tiny(), device, "torch", bad=bad)
    with pytest.raises(Poisoned, match=r"^torch made"):
        measure(one, Seen(ticking().clock), roof=1e9)


def test_an_error_alone_is_a_failure(device):
    (one,) = with_bad(tiny(), device, bad=lambda: False)
    known = dict(one.source.implementations)

    def raising(**inputs):
        raise RuntimeError("out of memory")

    source = replace(one.source, implementations={**known, "torch": raising})
    rows = rows_of([replace(one, source=source)])
    assert [row.status for row in rows] == ["measured", "failed: RuntimeError: out of memory"]
