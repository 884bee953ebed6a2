"""Whole-slide images: readers, the model's grid, tissue mask, quality, pieces."""
