"""Small datasets whose prediction is known: images painted in class colours, and a network that reads them."""

import numpy as np
import torch
from torch.nn import functional

from ntrm.core.labels import IGNORE, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image, write_indexed_mask
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.config import ModelConfig

MPP = 6.7
NAMES = ("EPI", "RET", "BKG", "SCC")
COLOURS = ((90, 20, 120), (220, 110, 170), (250, 250, 250), (120, 240, 130))


def schema_of(names=NAMES):
    """Classes of these names, each with its own colour whatever their order."""
    tissues = tuple(Tissue(k, name, name, COLOURS[NAMES.index(name)]) for k, name in enumerate(names))
    return LabelSchema(tissues, background="BKG" if "BKG" in names else None)


class ByColour(SegmentationModel):
    """Each pixel is the class whose colour is nearest; the coarse head says the same of blurred pixels."""

    def __init__(self, classes=4, coarse=True):
        super().__init__()
        self.coarse = coarse
        self.config = ModelConfig("by-colour", schema_of(NAMES[:classes]), window=64, mpp=MPP)
        self.colours = torch.nn.Parameter(torch.tensor(COLOURS[:classes]) / 255)

    def segment(self, x, *, coarse, graph):
        rgb = self._rgb(x)
        blurred = functional.interpolate(functional.avg_pool2d(rgb, 8), scale_factor=8.0, mode="nearest")
        return Segmentation(self._logits(rgb), self._logits(blurred) if coarse and self.coarse else None)

    def _rgb(self, x):
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (self.config.mean, self.config.std))
        return x * std + mean

    def _logits(self, rgb):
        return -30 * (rgb[:, None] - self.colours[None, :, :, None, None]).square().sum(dim=2)


def draw_mask(random, height, width, classes=4, ignored=0.0):
    """Blobs of some classes; ``ignored`` is the share of rows at the bottom about which nothing is known."""
    coarse = random.integers(0, classes, (-(-height // 9), -(-width // 7)))
    mask = np.kron(coarse, np.ones((9, 7), dtype=int))[:height, :width].astype(np.uint8)
    mask[height - int(ignored * height) :] = IGNORE
    return mask


def write_dataset(folder, sections, *, schema=None, mpp=MPP):
    """Plain layout. ``sections``: {name: (split, patient, seen mask, true mask)}; the image is the seen mask painted.

    Masks are indices of ``NAMES``; files hold those of ``schema``.
    """
    schema = schema or schema_of()
    table = np.full(256, IGNORE, dtype=np.uint8)
    for index, name in enumerate(NAMES):
        if name in schema.names:
            table[index] = schema.index(name)
    for name, (_, _, seen, truth) in sections.items():
        write_image(folder / "Images" / f"{name}.tif", np.array(COLOURS, dtype=np.uint8)[seen], Resolution.square(mpp))
        write_indexed_mask(folder / "Masks" / f"{name}.png", table[truth], schema)
    schema.write_csv(folder / "classes.csv")
    rows = [f"{name},{patient},{split},{mpp}" for name, (split, patient, _, _) in sections.items()]
    (folder / "cases.csv").write_text("\n".join(["name,group,split,mpp", *rows]) + "\n")
    return folder


def draw_sections(random, *shapes, ignored=0.0):
    """Test sections of the given shapes, where the network sees something else than the truth in places."""
    sections = {}
    for number, shape in enumerate(shapes):
        seen, other = draw_mask(random, *shape), draw_mask(random, *shape)
        truth = np.where(random.random(shape) < 0.8, seen, other).astype(np.uint8)
        truth[shape[0] - int(ignored * shape[0]) :] = IGNORE
        sections[f"s{number}"] = ("test", f"p{number // 2}", seen, truth)
    sections["training"] = ("train", "q", draw_mask(random, 20, 20), draw_mask(random, 20, 20))
    return sections


def scores_of(tables):
    """Pixel accuracy, macro IoU and Dice of pooled counts, straight from their definitions."""
    total = np.sum(tables, axis=0).astype(float)
    hits, true, called = np.diag(total), total.sum(axis=1), total.sum(axis=0)
    there = true + called > 0
    ious = hits[there] / (true + called - hits)[there]
    return hits.sum() / total.sum(), ious.mean(), (2 * hits[there] / (true + called)[there]).mean()


def of_test(sections):
    return {name: rest for name, (split, *rest) in sections.items() if split == "test"}


def count(truth, seen):
    known = truth != IGNORE
    return np.bincount(truth[known].astype(int) * 4 + seen[known], minlength=16).reshape(4, 4)
