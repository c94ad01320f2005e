"""The fused path's library: compiled once, at first use, for this processor, and kept.

    python -m layernorm.recurrent.cpu.build     # compile now, for instance into a container's image

The library is plain C++ without torch's headers, so a compiler is all it takes and a build takes
seconds. It lies in `$LAYERNORM_CACHE`, else in the user's cache folder, under a name made from the
sources, the compiler and the instruction set; so another version, or a home folder shared with
another kind of machine, builds its own beside it. A build is written under a temporary name and
renamed: two processes that build at once do not disturb each other. Its hash lies beside it, and a
file that does not match is built anew.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SOURCES = Path(__file__).with_name("native")
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
    capability = torch.backends.cpu.get_cpu_capability()
    return capability if capability in INSTRUCTIONS else "baseline"


def cache_folder() -> Path:
    """Where libraries are kept: `$LAYERNORM_CACHE`, else the system's place for a user's caches."""
    if chosen := os.environ.get("LAYERNORM_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "layernorm"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "layernorm"


def compiler() -> str:
    """The path of `$CXX`, g++ or clang++. Raises BuildError where there is none."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise BuildError(
        f"no C++ compiler ({' or '.join(names)}) on the PATH; install one, for instance "
        "g++, or set CXX"
    )


def options(instructions: str) -> list[str]:
    flags = [*OPTIONS, *INSTRUCTIONS.get(instructions, [])]
    return [*flags, WIDE] if instructions == "AVX512" else flags


def library_path(instructions: str | None = None) -> Path:
    """Where the library for these sources, this compiler and this processor is, or would be."""
    instructions = instructions or instruction_set()
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(" ".join([_version(compiler()), *options(instructions)]).encode())
    name = f"recurrent-{platform.machine()}-{instructions}-{digest.hexdigest()[:16]}.so"
    return cache_folder() / name


@functools.cache
def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the compiler {path} does not run: {error}") from error
    if done.returncode:
        raise BuildError(f"the compiler {path} does not run: {done.stderr.strip()[:500]}")
    return done.stdout.partition("\n")[0]


def build(instructions: str | None = None) -> Path:
    """The library's path; compiled if it is not there yet. Raises BuildError with the reason."""
    if os.name != "posix":
        raise BuildError(f"it is built on Linux and macOS only, this is {platform.system()}")
    instructions = instructions or instruction_set()
    path = library_path(instructions)
    if not _whole(path):
        print(
            "layernorm: compiling the fast path of the recurrent layers (once, some seconds)",
            file=sys.stderr,
        )
        _compile(path, instructions)
    return path


def _compile(path: Path, instructions: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(suffix=".so", prefix="building-", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise BuildError(
            f"{path.parent} cannot be written: {error}; set LAYERNORM_CACHE to a folder that can"
        ) from error
    command = [compiler(), *options(instructions), str(SOURCES / "recurrent.cpp"), "-o", temporary]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"{' '.join(command)} failed: {done.stderr.strip()[:2000]}")
        digest = hashlib.sha256(Path(temporary).read_bytes()).hexdigest()
        os.replace(temporary, path)
        Path(temporary).write_text(digest)
        os.replace(temporary, path.with_suffix(".sha256"))
    finally:
        Path(temporary).unlink(missing_ok=True)


def _whole(path: Path) -> bool:
    """Is the file there, as it was written? Loading a damaged one could end the process."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return path.with_suffix(".sha256").read_text() == digest
    except OSError:
        return False


def load() -> ctypes.CDLL:
    """The library, built if it is not there or damaged. Raises BuildError."""
    path = build()
    try:
        return _open(path)
    except (OSError, AttributeError) as error:
        raise BuildError(f"{path} cannot be loaded: {error}; delete it and try again") from error


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


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as error:
        sys.exit(f"layernorm: no fast path for the recurrent layers: {error}")
