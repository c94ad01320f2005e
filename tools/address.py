"""The repository's address: `tools/address.py` prints it, `tools/address.py set URL` changes it.

It stands in pyproject.toml ([project.urls] Repository). What repeats it because it must (launch
buttons, edit links, the Colab cell of every chapter, badges, the citation file, the published
pages) is found by its owner and name, so one command moves them all.
"""

import re
import subprocess
import sys
from pathlib import Path

from pairs import ROOT, address, replace

PATTERN = re.compile(r"https://github\.com/([A-Za-z0-9-]+)/([A-Za-z0-9._-]+?)/?")

# Addresses that can only mean this repository, whatever its owner and name.
OURS = [
    re.compile(rf"{start}([A-Za-z0-9-]+)/([A-Za-z0-9._-]*[A-Za-z0-9])")
    for start in (
        r"git\+https://github\.com/",
        r"git clone https://github\.com/",
        r"colab\.research\.google\.com/github/",
        r"mybinder\.org/v2/gh/",
    )
] + [re.compile(r"([A-Za-z0-9-]+)\.github\.io/([A-Za-z0-9._-]*[A-Za-z0-9])")]


def owner_and_name(url: str) -> tuple[str, str]:
    match = PATTERN.fullmatch(url.removesuffix(".git"))
    if not match:
        raise ValueError(f"expected https://github.com/OWNER/NAME, got {url!r}")
    return match[1], match[2]


def texts(root: Path) -> dict[Path, str]:
    """The tracked text files and what is in them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    found = {}
    for path in (root / name for name in listed.stdout.decode().split("\0")[:-1]):
        try:
            found[path] = path.read_bytes().decode()
        except (UnicodeDecodeError, FileNotFoundError):  # an image; a file deleted, not committed
            continue
    return found


def moved(text: str, old: tuple[str, str], new: tuple[str, str]) -> str:
    """The text with every mention of the old repository changed to the new one."""
    ends = r"(?![\w-]|\.(?!git\b)\w)"  # not another repository whose name begins alike
    for form in ("{}/{}", "{}.github.io/{}"):
        before, after = form.format(*old), form.format(*new)
        text = re.sub(rf"(?<![A-Za-z0-9._-]){re.escape(before)}{ends}", lambda _, a=after: a, text)
    return text


def strays(text: str, ours: tuple[str, str]) -> list[str]:
    """Addresses in the text that should be this repository's and are another's."""
    matches = [match for pattern in OURS for match in pattern.finditer(text)]
    wrong = [m for m in matches if (m[1], m[2].removesuffix(".git")) != ours]
    return [match[0] for match in wrong]


def change(root: Path, old: str, new: str) -> list[Path]:
    """Replace one address by another in all tracked files; returns those that changed."""
    pair = owner_and_name(old), owner_and_name(new)
    changed = []
    for path, before in texts(root).items():
        after = moved(before, *pair)
        if after != before:
            replace(path, after)
            changed.append(path)
    return changed


def main(arguments: list[str]) -> None:
    if not arguments:
        print(address())
    elif len(arguments) == 2 and arguments[0] == "set":
        for path in change(ROOT, address(), arguments[1]):
            print(path.relative_to(ROOT))
    else:
        sys.exit("usage: address.py [set https://github.com/OWNER/NAME]")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
