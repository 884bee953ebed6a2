"""Small datasets and recipes for tests of the training."""

import csv

import numpy as np
import torch
from tests.helpers import write_plain
from torch import nn

from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.training.recipe import load_recipe
from ntrm.training.train import train as train_network

CLASSES = "index,name,r,g,b\n0,left,200,0,0\n1,right,0,200,0\n2,glass,0,0,0\n"
ROWS = ["a,p1,train,2.0", "b,p2,train,2.0", "c,p3,val,2.0", "d,p4,test,2.0"]


def write_small(root, random, rows=ROWS, shape=(70, 150), classes=CLASSES):
    """Sections in the plain layout: two tissues and glass, told apart by their colour, with some pixels ignored."""
    sections = {}
    for row in rows:
        name = row.split(",")[0]
        mask = np.full(shape, 2, dtype=np.uint8)
        mask[8:-8, 5 : shape[1] // 2] = 0
        mask[8:-8, shape[1] // 2 : -5] = 1
        image = np.array([[200, 80, 150], [120, 60, 160], [240, 240, 240]], dtype=np.int16)[mask]
        image = np.clip(image + random.integers(-25, 26, image.shape), 0, 255).astype(np.uint8)
        mask[:3] = 255
        sections[name] = image, mask
    return write_plain(root, sections, rows, classes)


SETTINGS = {
    "steps": 12,
    "batch": 2,
    "window": 64,
    "overlap": 16,
    "validate_every": 2,
    "workers": 0,
    "encoder_weights": "none",
    "precision": "float32",
}


def small_recipe(**changes):
    """The recipe ``fast`` (all augmentations, warm-up, cosine) cut down to seconds."""
    return load_recipe("fast", {**SETTINGS, **changes})


def train_small(data, out, *, arch="tiny", changes=None, **settings):
    """A training with that recipe, changed by ``changes``."""
    settings = {"device": "cpu", "pictures": False, **settings}
    return train_network(data, out, arch=arch, recipe=small_recipe(**(changes or {})), **settings)


def read_log(path):
    """The rows of a run's log."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [{key: float(cell) if cell else None for key, cell in row.items()} for row in csv.DictReader(stream)]


def weights(folder):
    """The file of the trained weights."""
    return (folder / "model" / "model.safetensors").read_bytes()


class Tiny(SegmentationModel):
    """A few weights with all that can go wrong: batch norm, dropout, a coarse head, a parameter nobody uses."""

    def __init__(self, classes, coarse=True):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Conv2d(4, classes, 1)
        self.rough = nn.Conv2d(4, classes, 1) if coarse else None
        self.unused = nn.Parameter(torch.ones(2))

    def segment(self, x, *, coarse, graph):
        features = self.body(x)
        return Segmentation(self.head(features), self.rough(features) if coarse and self.rough else None)

    def without_gradient(self):
        return {"unused": "nothing reads it"}
