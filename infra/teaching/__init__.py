"""Sounds learnt from examples: heads on a model's embeddings, their operating points, and the background."""
