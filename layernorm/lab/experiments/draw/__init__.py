"""DRAW, a network that draws pictures in several glimpses (chapter 17)."""
