"""Tiles per second from the memory-mapped cache, against decoding the TIFF and the mask for every tile.

    python bench/tile_throughput.py                   # synthetic sections, about 20 seconds
    python bench/tile_throughput.py --data DIR        # the sections of a dataset
    python bench/tile_throughput.py --json out.json   # the same figures for a program

Both ways read the same tiles in the same random order, by turns in one run, so that the ratio holds whatever else
the machine does. The figures are medians over the repeats. The cache is a fresh folder that is deleted at the end;
its files are in the page cache, as those of a training are after its first epoch.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import tifffile
from PIL import Image
from scipy import ndimage

from ntrm.core.io import write_json
from ntrm.core.labels import IGNORE, SKIN, LabelSchema
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Case, Dataset
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.tensors import TileDataset, TileSource
from ntrm.data.tiles import GLASS, cut

T = TypeVar("T")


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            dataset = write_sections(Path(folder), options.sections, options.compression)
        else:
            from ntrm.data.layouts import open_dataset

            dataset = open_dataset(options.data, resolution=options.level)
        figures = measure(dataset, SectionCache(Path(folder, "cache")), options.tiles, options.repeats)
    for name, value in figures.items():
        print(f"{name:<30} {value:>12,.1f}")
    if options.json:
        write_json(options.json, figures)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a dataset; synthetic sections without it")
    parser.add_argument("--level", help="resolution level of the dataset, such as 10x")
    parser.add_argument("--sections", type=int, default=4, help="synthetic sections")
    parser.add_argument("--compression", choices=["none", "lzw", "zlib"], default="none", help="of the synthetic TIFFs")
    parser.add_argument("--tiles", type=int, default=40, help="tiles per repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


def write_sections(folder: Path, count: int, compression: str) -> Dataset:
    """Sections of 1500 × 2000 pixels, a common size at 10x, with smooth tissue and blobs of every class."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(count):
        field = ndimage.zoom(rng.random((16, 21)), 100, order=1)[:1500, :2000]
        mask = (field * len(SKIN)).astype(np.uint8)
        grain = rng.integers(0, 24, (*mask.shape, 3), dtype=np.uint8)
        case = Case(f"BCC_{number}", folder / f"BCC_{number}.tif", folder / f"BCC_{number}.png", group=str(number))
        pixels = 200 - 8 * mask[..., None] + grain
        tifffile.imwrite(
            str(case.image), pixels, photometric="rgb", compression=None if compression == "none" else compression
        )
        Image.fromarray(SKIN.colourise(mask)).save(str(case.mask))
        cases.append(case)
    return Dataset(folder, "queensland", SKIN, tuple(cases))


def measure(dataset: Dataset, cache: SectionCache, count: int, repeats: int) -> dict[str, float]:
    build_s, tiles = timed(lambda: TileDataset(dataset, cache=cache))
    start_s, _ = timed(lambda: TileDataset(dataset, cache=cache))
    cached, image_decoded, both_decoded = [], [], []
    for _ in range(repeats):
        numbers = random.choices(range(len(tiles)), k=count)
        cached.append(timed(lambda numbers=numbers: [tiles[n] for n in numbers])[0])
        places = [tiles.sources[n] for n in numbers]
        image_decoded.append(timed(lambda places=places: [decode_image(place) for place in places])[0])
        both_decoded.append(timed(lambda places=places: [decode_both(place, dataset.schema) for place in places])[0])
    return {
        "sections": len(dataset),
        "tiles": len(tiles),
        "first start, ms per section": 1000 * build_s / len(dataset),
        "next start, ms per section": 1000 * start_s / len(dataset),
        "tiles/s from the cache": count / statistics.median(cached),
        "tiles/s decoding the image": count / statistics.median(image_decoded),
        "tiles/s decoding image + mask": count / statistics.median(both_decoded),
        "ratio to the image alone": median_ratio(image_decoded, cached),
        "ratio to image + mask": median_ratio(both_decoded, cached),
    }


def median_ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def decode_image(place: TileSource) -> np.ndarray:
    """The image of a tile without a cache."""
    return cut(read_image(place.case.image), place.window, fill=GLASS)


def decode_both(place: TileSource, schema: LabelSchema) -> tuple[np.ndarray, np.ndarray]:
    """The tile without a cache."""
    return decode_image(place), cut(read_mask(place.case.mask, schema).mask, place.window, fill=IGNORE)


if __name__ == "__main__":
    main()
