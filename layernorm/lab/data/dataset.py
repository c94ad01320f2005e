"""A data set's description: name, license, files and how to load it."""

from collections.abc import Callable
from dataclasses import dataclass

from layernorm.lab.data import pinned
from layernorm.lab.data.splits import Splits


@dataclass(frozen=True)
class Dataset:
    """Name, content in one line, license and source of a data set, and how to get it.

    `files` are downloaded from `mirrors` (the first that works); without files it is embedded
    in another package. `content` is the hash of what `load` gives (`Splits.sha256`), where it is
    known: runs are named with it, so that they can be found without the data.
    """

    name: str
    what: str
    license: str
    source: str
    load: Callable[[], Splits]
    content: str | None = None
    files: tuple[pinned.Pinned, ...] = ()
    mirrors: tuple[str, ...] = ()
    default: bool = False

    def fetch(self) -> list[pinned.Found]:
        """Download what is not here yet; raises as `layernorm.lab.data.pinned.fetch` does."""
        if not self.files:
            return self.verify()
        return [pinned.fetch(self.name, file, self.mirrors) for file in self.files]

    def verify(self) -> list[pinned.Found]:
        """Check the hash of every file, or of embedded data; download nothing.

        Raises:
            FileNotFoundError: a file is not here.
            ValueError: a file, or the embedded data, has another hash than the pinned one.
        """
        if not self.files:
            return [pinned.Found("embedded", None, self.load().sha256)]
        return [pinned.find(self.name, file) for file in self.files]

    def status(self) -> str:
        """The place of the data, without reading them: `embedded`, a folder, or `not fetched`."""
        if not self.files:
            return "embedded"
        try:
            paths = [pinned.locate(self.name, file) for file in self.files]
        except (ModuleNotFoundError, NotADirectoryError) as error:
            return str(error)
        if not all(path.exists() for path in paths):
            return "not fetched"
        return ", ".join(dict.fromkeys(str(path.parent) for path in paths))
