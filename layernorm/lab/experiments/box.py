"""The paper's experiment beside ours, laid out for a wide page and for a phone."""

from __future__ import annotations

from html import escape

import pandas

_ROW = (
    "display: flex; flex-wrap: wrap; gap: 0 1.5rem; padding: 0.4rem 0; "
    "border-top: 1px solid #8888; text-align: left"
)


class Box(pandas.DataFrame):
    """A row each for claim, data, setup, parameters, updates, seeds and result.

    The first column is headed by whose experiment it is, the second is ours, here.
    In a page the two stand side by side where there is room for both, else one below the other.
    """

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<div style="{_ROW}"><strong style="flex-basis: 100%">{escape(name)}</strong>'
            + "".join(self._cell(column, row[column]) for column in self.columns)
            + "</div>\n"
            for name, row in self.iterrows()
        )
        return f'<div class="paper-box">\n{rows}</div>'

    @staticmethod
    def _cell(column: str, text: str) -> str:
        lines = "".join(f"<div>{escape(line)}</div>" for line in text.split("\n"))
        return f'<div style="flex: 1 1 16rem"><small><em>{escape(column)}</em></small>{lines}</div>'
