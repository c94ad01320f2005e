"""Files of a data set, pinned by SHA-256: found in a folder of the reader's, or downloaded.

A file is looked for in `$LAYERNORM_DATA/<data set>/`, which is only ever read, and else in the
user's cache folder, where downloads go. It is read only if its hash is the pinned one.
"""

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHUNK = 2**16  # bytes that are read at once, at most: as many as there are
TIMEOUT = 30  # seconds without a byte after which a mirror counts as down
SLOWEST = 50_000  # bytes a second; a mirror that takes longer for the whole file counts as down
PATIENCE = 60  # seconds that even the smallest file may take


@dataclass(frozen=True)
class Pinned:
    """A file's name, the SHA-256 its content must have, and its size in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Found:
    """Data in place with the hash they must have; no path: embedded in another package."""

    file: str
    path: Path | None
    sha256: str


def own_folder(dataset: str) -> Path | None:
    """`$LAYERNORM_DATA/<dataset>`, or None where the variable is not set.

    Raises:
        NotADirectoryError: `LAYERNORM_DATA` is set to something that is not a folder.
    """
    root = os.environ.get("LAYERNORM_DATA")
    if not root:
        return None
    if not Path(root).is_dir():
        raise NotADirectoryError(
            f"LAYERNORM_DATA: expected a folder with the data sets in it, got {root!r}, which is "
            "no folder; correct the variable, or unset it to use the cache folder"
        )
    return Path(root, dataset)


def cache_folder(dataset: str) -> Path:
    """The user's cache folder for downloads of this data set (pooch's choice per system)."""
    return Path(_pooch().os_cache("layernorm"), dataset)


def locate(dataset: str, file: Pinned) -> Path:
    """The file's place, now or after a download: the reader's own folder goes first."""
    own = own_folder(dataset)
    if own and (own / file.name).exists():
        return own / file.name
    return cache_folder(dataset) / file.name


def find(dataset: str, file: Pinned) -> Found:
    """The file in the reader's own folder or else in the cache, checked; nothing is downloaded.

    Raises:
        FileNotFoundError: it is in neither folder.
        ValueError: it is there and is no file, or its SHA-256 is not the pinned one.
    """
    path = locate(dataset, file)
    if not path.exists():
        own = own_folder(dataset)
        raise FileNotFoundError(
            f"{dataset}: {file.name} is not in {f'{own} nor in ' if own else ''}{path.parent}; "
            f"fetch it with: layernorm data fetch {dataset}"
        )
    if not path.is_file():
        raise ValueError(
            f"{path}: expected a file, got a folder, pipe or device; remove it, then fetch the "
            f"file with: layernorm data fetch {dataset}"
        )
    with path.open("rb") as content:
        actual = hashlib.file_digest(content, "sha256").hexdigest()
    if actual != file.sha256:
        raise ValueError(
            f"{path}: expected sha256 {file.sha256}, got {actual} ({path.stat().st_size} bytes): "
            "the file is cut off, corrupt or another one; delete it, then fetch it with: "
            f"layernorm data fetch {dataset}"
        )
    return Found(file.name, path, actual)


def fetch(dataset: str, file: Pinned, mirrors: tuple[str, ...]) -> Found:
    """The file as `find` gives it, downloaded first if need be, from the first mirror that works.

    pooch writes to a temporary name and renames only a file with the pinned hash, so neither a
    failure nor another process that fetches at the same time leaves a bad file. A bad file in
    the cache is replaced; a bad file in the reader's own folder is an error.

    Raises:
        OSError: every mirror failed; says how each did, and what to do by hand.
        ValueError: the reader's own folder holds a file of this name with another hash.
    """
    failures = []
    path = locate(dataset, file)
    try:
        return find(dataset, file)
    except FileNotFoundError:
        pass
    except ValueError as error:
        if path.parent == own_folder(dataset):
            raise
        failures.append(str(error))
    pooch = _pooch()
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent)
    for mirror in mirrors:
        try:
            pooch.retrieve(
                mirror + file.name,
                known_hash=f"sha256:{file.sha256}",
                fname=file.name,
                path=path.parent,
                downloader=_Download(file.size),
            )
        except (RequestException, HTTPError, ValueError) as error:
            failures.append(f"{mirror}{file.name}: {error}")
        else:
            return find(dataset, file)
    raise OSError(
        f"{dataset}: {file.name} could not be fetched from any mirror:\n  "
        + "\n  ".join(failures)
        + f"\nTry again later, or get the file by hand (sha256 {file.sha256}), put it into a "
        f"folder named {dataset}, and set LAYERNORM_DATA to the folder above that one, so that "
        f"it is found as $LAYERNORM_DATA/{dataset}/{file.name}"
    )


@dataclass(frozen=True)
class _Download:
    """Pooch's downloader, with an end: no more bytes than the file has, in limited time."""

    size: int

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        import requests

        allowed = PATIENCE + self.size / SLOWEST
        begin, got = time.monotonic(), 0
        with requests.get(url, stream=True, timeout=TIMEOUT) as response:
            response.raise_for_status()
            with open(output_file, "wb") as file:
                while chunk := response.raw.read1(CHUNK, decode_content=True):
                    got += len(chunk)
                    if got > self.size:
                        raise ValueError(f"sends more than the file's {self.size} bytes")
                    if time.monotonic() - begin > allowed:
                        raise ValueError(f"sent {got} of {self.size} bytes in {allowed:.0f} s")
                    file.write(chunk)


def _remove_abandoned(folder: Path) -> None:
    """Delete temporary files of downloads whose process was killed more than a day ago."""
    for path in folder.glob("tmp*"):
        with suppress(FileNotFoundError):  # another process was faster
            if time.time() - path.stat().st_mtime > 24 * 60 * 60:
                path.unlink()


def _pooch():
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "downloads and their cache need pooch, which is not installed; install it with: "
            "pip install 'layernorm[data]'"
        ) from error
    return pooch
