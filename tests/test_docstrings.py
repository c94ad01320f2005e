"""What the API page makes of a docstring."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "book" / "_ext" / "docstrings.py"


@pytest.fixture(scope="module")
def marked_up():
    spec = importlib.util.spec_from_file_location("docstrings", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda text: "\n".join(module.marked_up(text.split("\n")))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a `gain` and ``bias``", "a ``gain`` and ``bias``"),
        (r"the mean $\mu_i$ of unit $i$", r"the mean :math:`\mu_i` of unit :math:`i`"),
        ("|v| is one norm", r"\|v\| is one norm"),
        (r"(\*batch, H) and (*batch, *normalized)", r"(\*batch, H) and (\*batch, \*normalized)"),
        ("*every* case, **once**", "*every* case, **once**"),
        ("redraw_ and num_groups", r"redraw\_ and num_groups"),
        (":class:`Claim`, `a` * 2", r":class:`Claim`, ``a`` \* 2"),
        ("$$ a^2\n   + b $$", ".. math::\n\n   a^2\n      + b"),
        ("Equation.\n\n    y = (*x)|_", "Equation.\n\n.. code-block:: text\n\n    y = (*x)|_"),
        ("Use:\n\n    from a import b", "Use:\n\n.. code-block:: python\n\n    from a import b"),
        (">>> f(`x`)\n|v|", ">>> f(`x`)\n|v|"),
        ("Args:\n    x: (*batch)\n    w: `v`", "Args:\n    x: (\\*batch)\n    w: ``v``"),
    ],
)
def test_marks_up(written, expected, marked_up):
    assert marked_up(written) == expected
