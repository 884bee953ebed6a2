"""What a finished mask costs on one core: regions, polygons, graph, tables, small regions, measurements.

    OMP_NUM_THREADS=1 python bench/region_speed.py --masks FOLDER [--side 16] [--rounds 3] [--keep FOLDER]

``--masks`` is a folder of mask images in the colours of the classes, here the public skin masks. They are laid together
to one large mask, ``--side`` of them across and down, since a slide is large: what is paid once for each would hide
the rest. The edges of the images become borders of regions, so that there are more regions than in skin. Besides there
are drawn sections and *confetti*, the worst mask that a network makes. Processor milliseconds per megapixel, the least
of some rounds. ``--keep`` keeps the files: those of two versions of the program can be compared byte by byte.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.analysis.small_regions import remove_small_regions
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import read_mask
from ntrm.export.geojson import write_geojson
from ntrm.phantom.layout import layout
from ntrm.pipeline.measurements import measure_pieces, region_rows, scan_slide
from ntrm.results.documents import Grid
from ntrm.results.graph_document import write_graph
from ntrm.results.slide_state import SlideState, remember
from ntrm.results.tables import write_tables
from ntrm.wsi.pieces import PieceMap

MPP, COARSE = Resolution.square(0.67), Resolution.square(26.8)
SMALLEST = 64
"""Pixels of a region that is not small."""
LEVEL0 = 2.68
"""Pixels of the slide along one of the mask."""
TOGETHER = ("regions", "polygons", "graph", "tables", "small regions")
"""What the aim of 15 ms per megapixel is about."""


def mosaic(folder: Path, side: int, seed: int = 0) -> np.ndarray:
    """Masks of a folder, all of one size, laid together at random."""
    paths = sorted(folder.glob("*.png"))
    random = np.random.default_rng(seed)
    chosen = random.choice(len(paths), (side, side), replace=side * side > len(paths))
    tiles = {index: read_mask(paths[index], SKIN).mask for index in np.unique(chosen).tolist()}
    return np.block([[tiles[index] for index in row] for row in chosen.tolist()])


def drawn(sections: int = 3) -> np.ndarray:
    """Sections of the phantom at the µm/px of the masks' scan, one below the other."""
    masks = [
        layout(seed, 2.0, cancer).mask for seed, cancer in zip(range(sections), ("BCC", "SCC", "IEC"), strict=True)
    ]
    width = max(mask.shape[1] for mask in masks)
    wide = [np.pad(mask, ((0, 0), (0, width - mask.shape[1])), constant_values=SKIN.index("BKG")) for mask in masks]
    return np.concatenate(wide)


def confetti(side: int = 1024, grain: float = 2.0, seed: int = 0) -> np.ndarray:
    """Patches of all classes a few pixels across."""
    from scipy import ndimage

    random = np.random.default_rng(seed)
    fields = ndimage.gaussian_filter(random.standard_normal((len(SKIN), side, side), np.float32), (0, grain, grain))
    return np.asarray(fields.argmax(axis=0), dtype=np.uint8)


def stages_of(mask: np.ndarray, folder: Path) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """The work, stage by stage; each gets the results of those before."""
    pieces = PieceMap.of(np.ones([-(-side // 40) for side in mask.shape], dtype=bool), COARSE)
    confidence = (np.add.outer(*map(np.arange, mask.shape)) % 200 + 50).astype(np.uint8)
    scale = (LEVEL0, LEVEL0, 0.0, 0.0)
    grid = Grid(*mask.shape, (MPP.x, MPP.y), (0.25, 0.25), "file", 0, scale, None, {})

    def tables(done: dict[str, Any]) -> None:
        rows = tuple(region_rows("slide", done["regions"].table, grid=grid, schema=SKIN))
        state = SlideState(None, {}, {"slides": ({"slide_id": "slide"},), "regions": rows})
        remember(folder, state)
        write_tables(folder, [state.with_foot({"model_name": "bench"})], ())

    def graph(done: dict[str, Any]) -> None:
        graphs = {each.piece.number: (each.text, each.graph.as_node_link()) for each in done["measurements"]}
        write_graph(folder, {}, None, graphs, None)

    return {
        "regions": lambda _: scan_slide(mask, confidence, pieces, schema=SKIN, resolution=MPP),
        "measurements": lambda done: [*measure_pieces(done["regions"], pieces, schema=SKIN)],
        "polygons": lambda done: write_geojson(folder / "regions.geojson", done["regions"], SKIN, to_level0=scale),
        "graph": graph,
        "tables": tables,
        "small regions": lambda _: remove_small_regions(mask.copy(), SMALLEST),
    }


def measured(mask: np.ndarray, folder: Path, rounds: int) -> tuple[dict[str, float], int]:
    """Processor milliseconds per megapixel of each stage, the least of some rounds; the number of regions."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        done: dict[str, Any] = {}
        for name, work in stages_of(mask, folder).items():
            begun = time.process_time()
            done[name] = work(done)
            best[name] = min(best.get(name, np.inf), (time.process_time() - begun) * 1e9 / mask.size)
    return best, len(done["regions"].table)


def table(found: dict[str, tuple[dict[str, float], int, int]]) -> str:
    """In Markdown: a column for each mask."""
    heads = [f"{name}, {pixels / 1e6:.1f} MP, {regions:,} regions" for name, (_, regions, pixels) in found.items()]
    lines = [f"| processor ms per megapixel | {' | '.join(heads)} |", "|---" * (len(found) + 1) + "|"]
    costs = [costs for costs, _, _ in found.values()]
    lines += [f"| {stage} | {' | '.join(f'{each[stage]:.1f}' for each in costs)} |" for stage in costs[0]]
    sums = (f"{sum(each[stage] for stage in TOGETHER):.1f}" for each in costs)
    return "\n".join([*lines, f"| {', '.join(TOGETHER)} together | {' | '.join(sums)} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", type=Path, required=True)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=None, help="where the files stay")
    asked = parser.parse_args()
    masks = {"skin": mosaic(asked.masks, asked.side), "phantom": drawn(), "confetti": confetti()}
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name, mask in masks.items():
            folder = (asked.keep or Path(place)) / name
            folder.mkdir(parents=True, exist_ok=True)
            found[name] = (*measured(mask, folder, asked.rounds), mask.size)
    print(table(found))


if __name__ == "__main__":
    main()
