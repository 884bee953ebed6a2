"""Images of any size through a network: windows, blending, slides streamed to disk."""
