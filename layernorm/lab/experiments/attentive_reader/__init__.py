"""The attentive reader (chapter 15)."""
