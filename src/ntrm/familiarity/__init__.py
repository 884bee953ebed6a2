"""Whether a slide is like what a model was trained on: its colours, its texture, its anatomy."""
