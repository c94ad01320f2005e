"""Order-embeddings of images and captions (chapter 14)."""
