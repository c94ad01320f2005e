"""The fused path's library: it came with the package, or it is compiled once, at first use.

    python -m layernorm.recurrent.cpu.build          # compile now, for this processor
    python -m layernorm.recurrent.cpu.build --all    # for every processor of its kind

The library is plain C++ behind a plain C interface, without the headers of torch or Python: a
compiler is all it takes, a build takes seconds, and the result serves every version of both. Its
name is made from the sources, the options and the instruction set.

The wheels for Linux have a library for each instruction set in `prebuilt/` (setup.py); the one
with this processor's name is used, unless `CXX` names a compiler. One of other sources has another
name and is not found. Otherwise the library is compiled into `$LAYERNORM_CACHE`, else into the
user's cache folder, where another version, or a home folder shared with another kind of machine,
has its own beside it. One that is there needs no compiler. In a Dockerfile, for containers that may
run on another machine than the one that builds the image:

    ENV LAYERNORM_CACHE=/opt/layernorm
    RUN python -m layernorm.recurrent.cpu.build --all

A build is made in a folder of its own and renamed: processes that build at once do not disturb
each other, and the next build removes what one that was killed has left. The library's hash lies
beside it, and a file that does not match is built anew.
"""

import argparse
import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
PREBUILT = Path(__file__).with_name("prebuilt")  # of wheels for one platform only
OPTIONS = [
    *("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread"),
    *("-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
]
INSTRUCTIONS = {
    "AVX512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"],
    "AVX2": ["-mavx2", "-mfma"],
}
WIDE = "-mprefer-vector-width=512"  # compilers otherwise choose half the width


class BuildError(Exception):
    """Why there is no library here, in words for the user."""


def instruction_set() -> str:
    """ "AVX512", "AVX2" or "baseline": what torch uses here (see ATEN_CPU_CAPABILITY)."""
    import torch  # here: setup.py, which builds wheels without it, reads this file

    capability = torch.backends.cpu.get_cpu_capability()
    return capability if capability in INSTRUCTIONS else "baseline"


def instruction_sets() -> list[str]:
    """All that processors of this kind may have."""
    return ["baseline", *(INSTRUCTIONS if platform.machine() in ("x86_64", "amd64") else ())]


def cache_folder() -> Path:
    """The folder of libraries: `$LAYERNORM_CACHE`, else the system's place for a user's caches.

    Raises BuildError where the user has no home folder.
    """
    if chosen := os.environ.get("LAYERNORM_CACHE"):
        return Path(chosen)
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "layernorm"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "layernorm"
    except RuntimeError as error:
        raise BuildError(
            "this user has no home folder for the library; set LAYERNORM_CACHE to a folder"
        ) from error


def compiler() -> list[str]:
    """`$CXX`, which may have words before and after it ("ccache g++"), or g++, or clang++.

    Raises BuildError where there is none.
    """
    chosen = os.environ.get("CXX", "").strip()
    try:
        commands = [shlex.split(chosen)] if chosen else [["g++"], ["clang++"]]
    except ValueError as error:
        raise BuildError(f"CXX must be a command, got {chosen}: {error}") from error
    for program, *words in commands:
        if path := shutil.which(program):
            return [path, *words]
    raise BuildError(
        f"no C++ compiler ({' or '.join(c[0] for c in commands)}) on the PATH; install one, for "
        "instance g++, or set CXX"
    )


def options(instructions: str) -> list[str]:
    flags = [*OPTIONS, *INSTRUCTIONS.get(instructions, [])]
    return [*flags, WIDE] if instructions == "AVX512" else flags


def library_name(instructions: str) -> str:
    """The name of the library for these sources, with the digest of all that decides its code."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(" ".join(options(instructions)).encode())
    return f"recurrent-{platform.machine()}-{instructions}-{digest.hexdigest()[:16]}.so"


def library_path(instructions: str | None = None) -> Path:
    """The cache's file, there or not, of the library for these sources and this processor."""
    return cache_folder() / library_name(instructions or instruction_set())


def prebuilt(instructions: str | None = None) -> Path | None:
    """The library that came with the package for these sources and this processor; None if none
    did, or if `$CXX` asks for another compiler's."""
    path = PREBUILT / library_name(instructions or instruction_set())
    return path if not os.environ.get("CXX", "").strip() and _whole(path) else None


def prebuild(folder: Path) -> None:
    """Fill a wheel's folder with libraries for every processor of this kind, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    for instructions in instruction_sets():
        _compile(folder / library_name(instructions), instructions)


def build(instructions: str | None = None) -> Path:
    """The path of the library in the cache; compiled if it is not there yet. Raises BuildError
    with the reason."""
    if os.name != "posix":
        raise BuildError(f"it is built on Linux and macOS only, this is {platform.system()}")
    instructions = instructions or instruction_set()
    path = library_path(instructions)
    if not _whole(path):
        _compile(path, instructions)
    return path


def _compile(path: Path, instructions: str) -> None:
    command = [*compiler(), *options(instructions), str(SOURCES / "recurrent.cpp"), "-o"]
    print(
        "layernorm: compiling the fast path of the recurrent layers (once, some seconds)",
        file=sys.stderr,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _room(path.parent) as room:
            library, digest = room / "library", room / "sha256"
            _run([*command, str(library)])
            digest.write_text(_hash(library))
            os.replace(library, path)
            os.replace(digest, path.with_suffix(".sha256"))
    except OSError as error:
        raise BuildError(
            f"{path.parent} cannot be written: {error}; set LAYERNORM_CACHE to a folder that can"
        ) from error


@contextlib.contextmanager
def _room(cache: Path) -> Iterator[Path]:
    """A folder to build in. Those that killed processes have left are removed unless another one
    builds just now: every process keeps a lock while it does, which ends with it."""
    import fcntl  # there is none on Windows

    lock = os.open(cache, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # another one builds, or the file system has no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in cache.glob("building-*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as room:
            yield Path(room)
    finally:
        os.close(lock)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise BuildError(f"the compiler {command[0]} does not run: {error}") from error
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed: {done.stderr.strip()[:2000]}")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _whole(path: Path) -> bool:
    """Is the file there, as it was written? Loading a damaged one could end the process."""
    try:
        return path.with_suffix(".sha256").read_bytes() == _hash(path).encode()
    except OSError:
        return False


def load() -> ctypes.CDLL:
    """The library, built if it is not there or damaged, or was made for another system (a cache
    may be shared by containers, some with older system libraries). Raises BuildError."""
    unfit = (OSError, AttributeError)
    if path := prebuilt():
        with contextlib.suppress(*unfit):
            return _open(path)
    path = build()
    try:
        return _open(path)
    except unfit as error:
        try:
            _compile(path, instruction_set())
            return _open(path)
        except (*unfit, BuildError) as again:
            raise BuildError(f"{path} cannot be loaded: {error}; made anew: {again}") from again


def _open(path: Path) -> ctypes.CDLL:
    """The library, with its arguments as it describes them: `layout` packs them in their order,
    `absent` has their names, and 0 for what is not there."""
    library = ctypes.CDLL(str(path))
    library.use_gomp.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.use_huge_pages.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.arguments_layout.restype = ctypes.c_char_p
    described = library.arguments_layout().decode().split()  # name, kind, name, kind, ...
    library.layout = struct.Struct("@" + "".join(described[1::2]))
    library.absent = dict.fromkeys(described[::2], 0)
    if library.layout.size != library.arguments_size():
        raise OSError(f"its arguments take {library.arguments_size()} bytes, and not as described")
    return library


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m layernorm.recurrent.cpu.build",
        description="Compile the fast path of the recurrent layers, and print where it is.",
    )
    parser.add_argument("--all", action="store_true", help="for every processor of this kind")
    wanted = instruction_sets() if parser.parse_args().all else [instruction_set()]
    try:
        for instructions in wanted:
            print(prebuilt(instructions) or build(instructions))
    except BuildError as error:
        sys.exit(f"layernorm: no fast path for the recurrent layers: {error}")


if __name__ == "__main__":
    main()
