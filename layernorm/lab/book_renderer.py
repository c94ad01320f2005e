"""The built book's way to show an output that is a picture elsewhere."""

from __future__ import annotations

import json
from typing import Any


class BookRenderer:
    """A plugin of MyST-NB (entry point `myst_nb.mime_renderers`) for outputs of one type.

    A subclass has the type, `mime`, and `page`, the HTML of an output's specification.
    """

    mime: str

    def __init_subclass__(cls) -> None:
        cls.mime_priority_overrides = (("html", cls.mime, 1),)

    @classmethod
    def handle_mime(cls, renderer: Any, data: Any, inline: bool) -> list | None:
        """The output's HTML, or None for every output of another type."""
        if data.mime_type != cls.mime or inline:
            return None
        from docutils import nodes

        content = data.content
        specification = json.loads(content) if isinstance(content, str) else content
        return [nodes.raw(text=cls.page(specification), format="html")]

    @staticmethod
    def page(specification: dict[str, Any]) -> str:
        raise NotImplementedError
