"""A corrected slide, and one that nobody corrected before and after training, for docs/correct.md.

python research/correction_pictures.py --out learning/phantom --model learning/phantom/runs/followed-4-0/model \
    --slide foreign-BCC_21 --test foreign-BCC_23 docs/pictures/correct.jpg
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from PIL import Image as Pictures
from PIL import ImageDraw, ImageFont
from research.correction_training import CLICKS, Image, Mask, read_truth

from ntrm.core.labels import SKIN
from ntrm.data.image_files import read_image
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import stitch
from ntrm.models.hub import load
from ntrm.pipeline.slide_mask import corrections_in, open_mask

WIDE, TALL, CAPTION, GAP = 300, 330, 24, 8
"""In pixels: of a picture at most, of the caption below, of the gap between them."""
Panel = tuple[str, Image]


def corrected_row(out: Path, slide: str) -> list[Panel]:
    """Section, the network's mask, the corrected one, the truth."""
    mask, truth = open_mask(out / "clicked" / slide), read_truth(out, slide)
    labels, corrections = mask.labels(), corrections_in(mask)[1]
    return [
        ("a slide of another laboratory", read_image(out / "slides" / f"{slide}.tif")),
        ("the model", coloured(labels)),
        (f"after {CLICKS} simulated clicks", coloured(corrections.paint(labels))),
        ("truth", coloured(truth)),
    ]


def untouched_row(out: Path, test: str, model: str) -> list[Panel]:
    """Section, the mask of the bundled model, that of the trained one, the truth."""
    image = read_image(out / "test" / f"{test}.tif")
    masks = []
    for source in ("bundled", model):
        network = load(source)
        network.describe(window=256)
        masks.append(stitch(Predictor(network, "cpu", batch=4), image).mask)
    return [
        ("a slide that nobody corrected", image),
        ("the model", coloured(masks[0])),
        ("trained on four corrected slides", coloured(masks[1])),
        ("truth", coloured(read_truth(out, test))),
    ]


def coloured(mask: Mask) -> Image:
    """In the colours of the tissues; glass, and what nobody looked at, white."""
    shown = SKIN.colourise(mask, ignore_rgb=(255, 255, 255))
    shown[mask == SKIN.background_index] = 255
    return shown


def sheet_of(rows: list[list[Panel]]) -> Pictures.Image:
    """Rows of pictures with captions, each picture as large as fits."""
    columns = max(map(len, rows))
    sheet = Pictures.new("RGB", (columns * (WIDE + GAP) + GAP, len(rows) * (TALL + CAPTION + GAP) + GAP), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=15)
    for down, row in enumerate(rows):
        for across, (caption, pixels) in enumerate(row):
            left, top = GAP + across * (WIDE + GAP), GAP + down * (TALL + CAPTION + GAP)
            kind = Pictures.Resampling.LANCZOS if across == 0 else Pictures.Resampling.BOX
            picture = Pictures.fromarray(np.ascontiguousarray(pixels))
            factor = min(WIDE / picture.width, TALL / picture.height)
            picture = picture.resize((round(picture.width * factor), round(picture.height * factor)), kind)
            sheet.paste(picture, (left + (WIDE - picture.width) // 2, top))
            pen.text((left, top + TALL + 2), caption, fill="black", font=font)
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--slide", required=True)
    parser.add_argument("--test", required=True)
    asked = parser.parse_args()
    rows = [corrected_row(asked.out, asked.slide), untouched_row(asked.out, asked.test, asked.model)]
    sheet_of(rows).save(asked.picture, quality=85)


if __name__ == "__main__":
    main()
