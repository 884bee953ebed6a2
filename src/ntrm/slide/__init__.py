"""Whole slides: readers, the model's grid, tissue, pieces and streaming segmentation."""
