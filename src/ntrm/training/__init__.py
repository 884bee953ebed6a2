"""From a dataset to a model folder: recipe → data → losses → loop → checkpoints; ``train`` is the way in."""
