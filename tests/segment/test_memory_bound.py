"""What is made of a finished slide takes memory by its outlines, not by its pixels."""

import tracemalloc

import numpy as np
import pytest
from tests.evaluation.small import MPP, schema_of

from ntrm.core.arrays import new_map
from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution
from ntrm.export import pyramid
from ntrm.export.geojson import write_geojson
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.regions import outline, regions
from ntrm.regions.regions import scan_mask
from ntrm.regions.small_regions import remove_small_regions
from ntrm.results.familiarity import WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.segment.measurements import measure_pieces, scan_slide
from ntrm.segment.pictures import overlay
from ntrm.slides.pieces import PieceMap

SMALL, LARGE = (1_000, 1_200), (5_000, 6_000)  # Of the large one a single map takes 29 MB
SCHEMA, SQUARE = schema_of(), Resolution.square(MPP)


@pytest.fixture(autouse=True)
def small_bands(monkeypatch):
    monkeypatch.setattr(pyramid, "BAND_PIXELS", 1 << 18)
    monkeypatch.setattr(pyramid, "IN_MEMORY", 1 << 18)
    monkeypatch.setattr(regions, "STRIP_PIXELS", 1 << 18)
    monkeypatch.setattr(outline, "MOST_PIXELS", 1 << 18)


def stored(folder, shape, random):
    """A finished slide with the same tissue whatever its size."""
    tissue = np.kron(random.integers(1, 5, (10, 20)), np.ones((50, 50))).astype(np.uint8)
    labels, confidence = new_map(shape, folder, IGNORE), new_map(shape, folder)
    labels[:500, 100:1100], confidence[:500, 100:1100] = tissue - 1, tissue
    return labels, confidence


def peak_of(folder, maps, work):
    tracemalloc.start()
    try:
        work(folder, *maps)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def measure(labels, confidence):
    """The whole slide as one piece."""
    coarse = Resolution.square(10 * MPP)
    piece = PieceMap.of(np.ones((labels.shape[0] // 10, labels.shape[1] // 10), dtype=bool), coarse)
    slide = scan_slide(labels, confidence, piece, schema=SCHEMA, resolution=SQUARE)
    (found,) = measure_pieces(slide, piece, SlideFamiliarity(WITHOUT_REFERENCE, {}), schema=SCHEMA)
    assert (found.summary.mask_box_px.height, found.summary.mask_box_px.width) == labels.shape
    assert sum(found.summary.areas_mm2.values()) == pytest.approx(500_000 * SQUARE.pixel_area_um2 / 1e6)


WORKS = {
    "mask": lambda folder, labels, _: write_mask_ome_tiff(folder / "m.ome.tif", labels, SCHEMA, SQUARE),
    "confidence": lambda folder, _, values: write_confidence_ome_tiff(folder / "c.ome.tif", values, SQUARE),
    "polygons": lambda folder, labels, values: write_geojson(
        folder / "r.geojson", scan_mask(labels, SCHEMA, SQUARE, confidence=values), SCHEMA
    ),
    "measurements": lambda _, labels, values: measure(labels, values),
    "without small regions": lambda _, labels, __: remove_small_regions(labels, 64),
    "picture": lambda _, labels, __: overlay(np.zeros((100, 200, 3), np.uint8), labels, SCHEMA),
}


def test_memory_does_not_grow_with_the_slide(tmp_path, random):
    slides = {name: stored(tmp_path / name, shape, random) for name, shape in (("small", SMALL), ("large", LARGE))}
    for name, work in WORKS.items():
        small, large = (peak_of(tmp_path / at, maps, work) for at, maps in slides.items())
        # A band of tiles over the width, 512 rows, takes 3 MB of the large slide; some of them are held at a time.
        assert large < small + 20, (name, small, large)
