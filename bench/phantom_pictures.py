"""Close-ups of what version 2 of the phantom draws beside version 1, for docs/phantom.md.

python bench/phantom_pictures.py docs/pictures/phantom-structures.jpg
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.section_plan import Plan, draw_plan
from ntrm.phantom.layout import GRID_UM, paint_fine
from ntrm.phantom.render import Artefacts, render
from ntrm.phantom.texture.looks import Look
from ntrm.phantom.tissues import FINE, codes_of
from ntrm.phantom.versions import VERSIONS

VERSION = "2"
SIDE, MARGIN, CAPTION, COLUMNS = 300, 100, 24, 5
"""In pixels: of a close-up, of what is rendered around it, of the caption below."""


class Subject(NamedTuple):
    """What a close-up shows: a tissue, and the words below."""

    caption: str
    cancer: str
    tissue: str
    least_px: int = 40
    """Area of it on the grid of 6.7 µm/px."""
    pigmented: bool = False
    mpp: float = 1.34


SUBJECTS = (
    Subject("basket-weave keratin", "none", "basket weave", 600),
    Subject("ridges cut along (EPI), wider view", "none", "nets", 1, mpp=3.35),
    Subject("cyst (EPI around KER), wider view", "none", "cysts", 1, mpp=3.35),
    Subject("melanin, basal and in macrophages", "none", "EPI", 500, pigmented=True),
    Subject("ulcer under its crust (INF)", "none", "crust", 150),
    Subject("sebaceous lobules (GLD)", "none", "sebaceous", 150),
    Subject("eccrine coil (GLD), wider view", "none", "eccrine", 400, mpp=2.01),
    Subject("eccrine duct (GLD)", "none", "duct", 80),
    Subject("arrector muscle (RET)", "none", "muscle", 150),
    Subject("vessel with red cells (RET)", "none", "red cells", 25),
    Subject("solar elastosis (PAP, RET)", "none", "elastosis", 3000),
    Subject("oedema (PAP)", "none", "oedema", 2000),
    Subject("scar (RET)", "none", "scar", 3000),
    Subject("nerve (RET)", "none", "nerve", 40),
    Subject("nests of BCC, wider view", "BCC", "BCC", 1500, mpp=3.35),
)


def close_up(subject: Subject, first: int) -> NDArray[np.uint8]:
    """The first section from a seed on that shows it."""
    for seed in count(first):
        look = Look.draw(seed, VERSIONS[VERSION].looks)
        plan = draw_plan(seed, subject.cancer, VERSION)
        if subject.pigmented and look.tissues["EPI"].melanin < 0.25:
            continue
        for y_um, x_um in _places(plan, subject):
            return _crop(plan, seed, y_um, x_um, subject.mpp)
    raise AssertionError


def _places(plan: Plan, subject: Subject) -> Iterator[tuple[float, float]]:
    """Where the subject is in the picture, in µm from its corner."""
    if subject.tissue in ("nets", "cysts"):
        for structure in plan.variety.structures:
            for body in structure.bodies if structure.name == subject.tissue else ():
                lift = plan.specimen.axis.value(plan.lesions.strata.lift, body.u_um)
                y, x = plan.specimen.frame.to_picture(body.u_um, body.v_um - lift)
                yield float(y[0]) - plan.box_um[0], float(x[0]) - plan.box_um[1]
        return
    codes = codes_of(subject.tissue) if subject.tissue in FINE else [SKIN.index(subject.tissue)]
    regions, number = ndimage.label(np.isin(paint_fine(plan, GRID_UM), codes))
    sizes = ndimage.sum(regions > 0, regions, range(1, number + 1))
    if number and max(sizes) >= subject.least_px:
        inside = ndimage.distance_transform_edt(regions == 1 + int(np.argmax(sizes)))
        row, column = np.unravel_index(int(np.argmax(inside)), inside.shape)
        yield (row + 0.5) * GRID_UM, (column + 0.5) * GRID_UM


def _crop(plan: Plan, seed: int, y_um: float, x_um: float, mpp: float) -> NDArray[np.uint8]:
    fine = np.pad(paint_fine(plan, mpp), SIDE, constant_values=SKIN.index("BKG"))
    top, left = (round(at / mpp) + SIDE - SIDE // 2 - MARGIN for at in (y_um, x_um))
    part = fine[top : top + SIDE + 2 * MARGIN, left : left + SIDE + 2 * MARGIN]
    picture = render(np.ascontiguousarray(part), mpp, seed, artefacts=Artefacts.none(), version=VERSION)
    return picture[MARGIN:-MARGIN, MARGIN:-MARGIN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", type=int, default=0, help="seed of the first section that is looked at")
    chosen = parser.parse_args()
    rows = -(-len(SUBJECTS) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + 8) + 8, rows * (SIDE + CAPTION + 8) + 8), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=15)
    for number, subject in enumerate(SUBJECTS):
        left, top = 8 + number % COLUMNS * (SIDE + 8), 8 + number // COLUMNS * (SIDE + CAPTION + 8)
        sheet.paste(Image.fromarray(close_up(subject, chosen.first + 100 * number)), (left, top))
        pen.text((left, top + SIDE + 2), subject.caption, fill="black", font=font)
    sheet.save(chosen.out, quality=85)


if __name__ == "__main__":
    main()
