"""Skip-thoughts, the paper's section 6.3 (chapter 16)."""
