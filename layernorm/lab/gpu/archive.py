"""One file with all results of a machine whose disk is lost at the end.

It comes out whole, at any moment, and goes in again on another machine, to go on there.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

from layernorm.lab.records.files import write_bytes

LIMIT = 15_500_000  # bytes of an archive
KEPT = (".json", ".begun", ".log")
WEIGHTS = ".checkpoint"  # of a run that is not done: kept as far as there is room


def pack(folder: Path, archive: Path) -> list[Path]:
    """Write the results under a folder into an archive, in place of an earlier one.

    Returns:
        The checkpoints that had no room; their runs start anew.

    Raises:
        ValueError: the results alone exceed `LIMIT`; says what to do.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    results = [path for path in found if path.suffix in KEPT]
    weights = [path for path in found if path.suffix == WEIGHTS]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        _add(tar, folder, results)
    if content.tell() > LIMIT:
        raise ValueError(
            f"archive: the results under {folder} take {content.tell():,} bytes packed, more than "
            f"{LIMIT:,}; publish them (`layernorm records add`) and begin with an empty folder"
        )
    sizes: dict[Path, int] = {}
    for path in weights:
        with contextlib.suppress(FileNotFoundError):  # of a run that has just ended
            sizes[path] = path.stat().st_size
    taken, room = [], LIMIT - content.tell()
    for path in sorted(sizes, key=sizes.__getitem__):
        if sizes[path] < room:
            taken.append(path)
            room -= sizes[path]
    if taken:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            _add(tar, folder, [*results, *taken])
    write_bytes(archive, content.getbuffer())
    return [path for path in sizes if path not in taken]


def _add(tar: tarfile.TarFile, folder: Path, files: Iterable[Path]) -> None:
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # a marker whose case has just ended
            tar.add(path, path.relative_to(folder).as_posix())


def unpack(archive: Path, folder: Path) -> int:
    """Put an archive's files under a folder, in place of older ones; returns how many.

    Raises:
        ValueError: there is no such archive, it is damaged, or it holds something else.
    """
    try:
        with tarfile.open(archive) as tar:
            members = [member for member in tar.getmembers() if not member.isdir()]
            for member in members:
                if Path(member.name).suffix not in (*KEPT, WEIGHTS) or not member.isfile():
                    raise ValueError(
                        f"archive: {archive} holds {member.name!r}, which is no result; give one "
                        "that this command wrote"
                    )
            tar.extractall(folder, members, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ValueError(
            f"archive: {archive} cannot be read ({error}); give one that this command wrote, or "
            "leave it out to begin anew"
        ) from error
    return len(members)
