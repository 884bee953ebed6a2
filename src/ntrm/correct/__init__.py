"""Correct a mask by naming regions: a graph of its parts, and how a name given to one is carried on to others."""
