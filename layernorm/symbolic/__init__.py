"""Normalization in SymPy: definitions, and what follows from them for every size of a layer."""
