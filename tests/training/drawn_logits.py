"""Random logits and targets for tests of the losses."""

import numpy as np
import torch


def draw(random, classes=5, size=(2, 6, 7), dtype=torch.float64):
    """Logits and a target that lacks some classes, whichever they are, and some pixels."""
    batch, height, width = size
    logits = torch.as_tensor(random.normal(scale=3, size=(batch, classes, height, width)), dtype=dtype)
    present = random.permutation(classes)[: random.integers(1, classes + 1)]
    target = random.choice(present, size=size).astype(np.uint8)
    target[random.random(size) < 0.3] = 255
    return logits, torch.from_numpy(target)
