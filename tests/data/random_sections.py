"""Sections of random pixels and labels."""

import numpy as np
import tifffile
from PIL import Image

from ntrm.core.labels import SKIN
from ntrm.data.dataset import Case


def write_random(folder, random, *sizes):
    """One of each size in the layout of the skin dataset: its case, pixels and labels."""
    for number, size in enumerate(sizes, start=1):
        name = f"BCC_{number}"
        case = Case(name, folder / f"10x/Images/{name}.tif", folder / f"10x/Masks/{name}.png", group=name, level="10x")
        for path in (case.image, case.mask):
            path.parent.mkdir(parents=True, exist_ok=True)
        image = random.integers(0, 256, (*size, 3), dtype=np.uint8)
        mask = random.integers(0, len(SKIN), size, dtype=np.uint8)
        tifffile.imwrite(case.image, image, photometric="rgb")
        Image.fromarray(SKIN.colourise(mask)).save(case.mask)
        yield case, image, mask
