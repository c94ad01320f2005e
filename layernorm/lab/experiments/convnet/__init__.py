"""ConvNets (chapter 20)."""
