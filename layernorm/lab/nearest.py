"""The hint of an error about a name that is not there."""

from collections.abc import Collection
from difflib import get_close_matches


def hint(name: str, there: Collection[str]) -> str:
    """The name that was probably meant, else all that there are.

    >>> hint("laier", ["none", "layer"]), hint("xyz", ["none", "layer"])
    ("did you mean 'layer'?", 'there are none, layer')
    """
    near = get_close_matches(name, there, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(there) or 'none'}"
