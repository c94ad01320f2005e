"""Handwriting (chapter 18)."""
