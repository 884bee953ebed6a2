"""A synthetic skin dataset: anatomy (layout) → stain (render) → files in the real dataset's layout."""
