"""Deep-zoom tiles of slides and of results."""
