"""All results in one file, out and in again."""

import json
import random
import tarfile
from dataclasses import replace

import pytest
from lab.benchmarks.benching import GPU

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.recording import record_of
from layernorm.lab.gpu import archive
from layernorm.lab.gpu.steps import STEPS


def write(folder, name, content=b"x"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_results_markers_logs_and_checkpoints_come_back(tmp_path):
    there, home = tmp_path / "there", tmp_path / "home"
    kept = [
        "bench_layer/targets/a.json",
        "bench_layer/targets/b.begun",
        "gpu.log",
        "m/c.checkpoint",
    ]
    for name in (*kept, "m/c.tmp"):
        write(there, name, name.encode())
    packed = tmp_path / "out" / "gpu.tar.gz"
    assert archive.pack(there, packed) == []
    assert names(tmp_path / "out") == ["gpu.tar.gz"]
    write(home, "gpu.log", b"old")
    assert archive.unpack(packed, home) == 4
    assert names(home) == sorted(kept)
    assert (home / "gpu.log").read_text() == "gpu.log"


def test_checkpoints_without_room_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LIMIT", 3000)
    write(tmp_path / "runs", "a.json")
    for name, size in (("small", 1500), ("large", 2000)):
        write(tmp_path / "runs", f"{name}.checkpoint", random.Random(0).randbytes(size))
    left = archive.pack(tmp_path / "runs", tmp_path / "a.tar.gz")
    assert [path.stem for path in left] == ["large"]
    assert archive.unpack(tmp_path / "a.tar.gz", tmp_path / "home") == 2
    assert (tmp_path / "a.tar.gz").stat().st_size < 3000


def test_a_checkpoint_that_vanishes_meanwhile_is_left_out(tmp_path, monkeypatch):
    """Its run is done: it was there when the folder was listed, and is not when it is packed."""
    add = archive._add

    def late(tar, folder, files):
        (folder / "done.checkpoint").unlink(missing_ok=True)
        add(tar, folder, files)

    for name in ("a.json", "done.checkpoint", "b.checkpoint"):
        write(tmp_path / "runs", name)
    monkeypatch.setattr(archive, "_add", late)
    assert archive.pack(tmp_path / "runs", tmp_path / "a.tar.gz") == []
    assert archive.unpack(tmp_path / "a.tar.gz", tmp_path / "home") == 2


def test_too_many_results_are_told_and_the_last_archive_stays(tmp_path, monkeypatch):
    write(tmp_path / "runs", "a.json")
    archive.pack(tmp_path / "runs", tmp_path / "a.tar.gz")
    monkeypatch.setattr(archive, "LIMIT", 500)
    write(tmp_path / "runs", "b.json", random.Random(0).randbytes(2000))
    with pytest.raises(ValueError, match=r"archive: the results under .* more than 500; publish"):
        archive.pack(tmp_path / "runs", tmp_path / "a.tar.gz")
    assert archive.unpack(tmp_path / "a.tar.gz", tmp_path / "home") == 1


def test_an_archive_that_is_being_written_does_not_spoil_the_last_one(tmp_path, monkeypatch):
    """The process may be ended at any moment: the file comes into its place in one step."""

    def ended(descriptor):
        raise KeyboardInterrupt

    write(tmp_path / "runs", "a.json")
    packed = tmp_path / "out" / "a.tar.gz"
    archive.pack(tmp_path / "runs", packed)
    before = packed.read_bytes()
    write(tmp_path / "runs", "b.json", random.Random(0).randbytes(2000))
    monkeypatch.setattr("layernorm.lab.records.files.os.fsync", ended)
    with pytest.raises(KeyboardInterrupt):
        archive.pack(tmp_path / "runs", packed)
    assert names(packed.parent) == [packed.name]
    assert packed.read_bytes() == before


@pytest.mark.parametrize("kind", ["missing", "damaged", "foreign", "outside", "link"])
def test_what_is_no_archive_of_results_is_refused(kind, tmp_path):
    packed, home = tmp_path / "a.tar.gz", tmp_path / "home"
    if kind == "damaged":
        write(tmp_path / "runs", "a.json", random.Random(0).randbytes(4000))
        archive.pack(tmp_path / "runs", packed)
        packed.write_bytes(packed.read_bytes()[:2000])
    elif kind != "missing":
        write(tmp_path, "a.json")
        with tarfile.open(packed, "w:gz") as tar:
            if kind == "link":
                link = tarfile.TarInfo("a.json")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(link)
            else:
                tar.add(tmp_path / "a.json", {"foreign": "a.py", "outside": "../b.json"}[kind])
    with pytest.raises(ValueError, match="archive: "):
        archive.unpack(packed, home)
    assert not (tmp_path / "b.json").exists()


def test_all_that_is_planned_fits(tmp_path):
    """A record of each case, with numbers that do not compress, times the number of cases."""
    plan = [case for step in STEPS.values() for case in step(GPU)]
    some = plan[:: len(plan) // 60]
    draw, rows = random.Random(0), 0
    for case in some:
        for name in case.implementations:
            numbers = {
                n: draw.random() for n in ("seconds", "p20", "p80", "host", "bandwidth", "roof")
            }
            ratios = {n: draw.random() for n in ("ratio", "ratio_low", "ratio_high")}
            row = replace(
                case.blank(name), error=draw.random(), traffic=1, peak_memory=9**9, **numbers
            )
            record = record_of(replace(row, **ratios), case.profile, case.depends_on(name))
            records.save(record, tmp_path / "runs")
            rows += 1
    archive.pack(tmp_path / "runs", tmp_path / "a.tar.gz")
    every = sum(len(case.implementations) for case in plan)
    assert rows > 100
    assert (tmp_path / "a.tar.gz").stat().st_size / rows * every < archive.LIMIT
    assert json.loads(next((tmp_path / "runs").rglob("*.json")).read_text())
