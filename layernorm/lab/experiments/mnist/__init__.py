"""Permutation-invariant MNIST (chapter 19)."""
