"""The masks are as it is said, and every stage leaves its files."""

import json

import numpy as np

from bench import region_speed as bench
from ntrm.core.labels import SKIN
from ntrm.data.image_files import write_rgb_mask


def test_masks_of_a_folder_are_laid_together(tmp_path, random):
    tiles = random.integers(0, len(SKIN), (5, 8, 8)).astype(np.uint8)
    for number, tile in enumerate(tiles):
        write_rgb_mask(tmp_path / f"{number}.png", tile, SKIN)
    mask = bench.mosaic(tmp_path, 2)
    laid = [mask[top : top + 8, left : left + 8] for top in (0, 8) for left in (0, 8)]
    assert all(any(np.array_equal(part, tile) for tile in tiles) for part in laid)
    assert len({part.tobytes() for part in laid}) == 4


def test_every_stage_is_measured_and_leaves_its_file(tmp_path, seed):
    mask = bench.confetti(500, grain=9.0, seed=seed)  # smaller ones make no piece
    costs, regions = bench.measured(mask, tmp_path, rounds=1)
    assert all(cost > 0 for cost in costs.values())
    assert {*bench.TOGETHER} <= costs.keys()
    assert len(json.loads((tmp_path / "regions.geojson").read_text())["features"]) == regions
    assert len((tmp_path / "regions.csv").read_text().splitlines()) == regions + 1
    (piece,) = json.loads((tmp_path / "graph.json").read_text())["pieces"]
    assert sum(node["kind"] == "region" for node in piece["graph"]["nodes"]) == regions


def test_the_table_adds_up_what_the_aim_is_about():
    costs = {**dict.fromkeys(bench.TOGETHER, 1.5), "measurements": 9.0}
    assert bench.table({"skin": (costs, 1234, 2_000_000)}).splitlines() == [
        "| processor ms per megapixel | skin, 2.0 MP, 1,234 regions |",
        "|---|---|",
        *(f"| {name} | {cost} |" for name, cost in costs.items()),
        f"| {', '.join(bench.TOGETHER)} together | 7.5 |",
    ]
