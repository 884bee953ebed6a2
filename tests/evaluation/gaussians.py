"""A dataset whose pixels are noise around the colour of their class, and the network that knows exactly how sure to be.

Pixels are drawn as N(colour of the class, NOISE²) with all classes equally likely. The true posterior is then the
softmax of a linear function of the pixel, which a 1 × 1 convolution computes; scaled logits are wrong by that scale.
"""

import numpy as np
import torch
from tests.helpers import Convolution, write_plain

from ntrm.core.labels import IGNORE
from ntrm.models.config import IMAGENET_MEAN, IMAGENET_STD
from ntrm.models.registry import ARCHITECTURES, create

NOISE = 25.0
MPP = 6.7
WINDOW = 64
NAMES = ("gland", "stroma", "fat", "background")
COLOURS = np.array([(100, 110, 120), (130, 100, 110), (120, 140, 100), (150, 150, 150)], dtype=np.float64)


def make_network(schema, sharpness=1.0):
    """The true posterior's logits times ``sharpness``, saved under the name ``posterior``."""
    network = create("posterior", schema).describe(mpp=MPP, window=WINDOW)
    scale, shift = 255 * np.array(IMAGENET_STD), 255 * np.array(IMAGENET_MEAN)
    weight = COLOURS * scale / NOISE**2  # the network sees (pixel − shift) / scale
    bias = (COLOURS @ shift - (COLOURS**2).sum(axis=1) / 2) / NOISE**2
    with torch.no_grad():
        network.conv.weight.copy_(torch.from_numpy(weight * sharpness)[:, :, None, None])
        network.conv.bias.copy_(torch.from_numpy(bias * sharpness))
    return network


def register(monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "posterior", Convolution)


def write_sections(root, random, shapes, *, ignored=0.1, mpp=MPP):
    """Sections ``{(name, split): shape}`` in the plain layout; returns their pixels and truths by name."""
    rows, truth = [], {}
    for (name, split), shape in shapes.items():
        mask = random.integers(0, len(NAMES), shape).astype(np.uint8)
        image = COLOURS[mask] + NOISE * random.standard_normal((*shape, 3))
        image = np.clip(np.round(image), 0, 255).astype(np.uint8)
        mask[random.random(shape) < ignored] = IGNORE
        rows.append(f"{name},patient-{name},{split},{mpp}")
        truth[name] = image, mask
    colours = [f"{k},{name},{k * 60},{k * 50},{k * 40}" for k, name in enumerate(NAMES)]
    write_plain(root, truth, rows, "\n".join(["index,name,r,g,b", *colours]) + "\n")
    return truth
