"""A character-level transformer: where to normalize, and whether to."""
