"""Build steps beyond pyproject.toml: README's links made absolute, and wheels that have the
recurrent layers' C++ compiled.

    LAYERNORM_PREBUILD=1 python -m build --wheel

makes a wheel for this platform with a library for each instruction set. It suits every version of
Python and torch, since the library uses neither. Without the variable the wheel is pure Python,
and the library is compiled at first use.
"""

import os
import re
import runpy
import tomllib
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PACKAGE = Path("layernorm", "recurrent", "cpu")
PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def readme() -> str:
    """README.md for a page that has no other files of the repository: each link into it leads to
    this version's file there, a picture to the file itself."""
    repository, tag = PROJECT["urls"]["Repository"], f"v{PROJECT['version']}"

    def absolute(found: re.Match) -> str:
        mark, text, aim = found.groups()
        if aim.startswith("#"):
            return f"{mark}[{text}]({repository}/tree/{tag}{aim})"
        return f"{mark}[{text}]({repository}/{'raw' if mark else 'blob'}/{tag}/{aim})"

    link = r"(?<!\w)(!?)\[([^][]*)\]\((?![a-z]+:)([^()\s]+)\)"
    return re.sub(link, absolute, Path("README.md").read_text(encoding="utf-8"))


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class BuildWithLibraries(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            build = runpy.run_path(str(PACKAGE / "build.py"))  # without its package, and so torch
            build["prebuild"](Path(self.build_lib, PACKAGE, build["PREBUILT"].name))


class WheelForEveryPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


chosen = os.environ.get("LAYERNORM_PREBUILD", "0")
if chosen not in ("0", "1"):
    raise SystemExit(f"LAYERNORM_PREBUILD must be 0 or 1, got {chosen!r}")
if chosen == "1":
    commands = {"build_py": BuildWithLibraries, "bdist_wheel": WheelForEveryPython}
    options = {"distclass": PlatformDistribution, "cmdclass": commands}
else:
    options = {}
setup(long_description=readme(), long_description_content_type="text/markdown", **options)
