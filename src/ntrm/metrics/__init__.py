"""How good a segmentation is: pure functions on arrays, which know neither networks nor files."""
