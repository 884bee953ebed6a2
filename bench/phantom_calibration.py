"""Measure how far the phantom resembles the real masks, over many sections; prints the table of docs/phantom.md.

python bench/phantom_calibration.py --sections 200 --first 0 --phantom-version 1 --jobs 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from bench.phantom_realism import REAL_SHARE, Calibration, calibrate, tissue_share

from ntrm.core.labels import Mask
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import paint_mask
from ntrm.phantom.versions import DEFAULT_VERSION


def draw(seed: int, mpp: float, version: str) -> tuple[Mask, float]:
    start = time.process_time()
    return paint_mask(draw_plan(seed, version=version), mpp), time.process_time() - start


def table(result: Calibration) -> str:
    real = tissue_share(REAL_SHARE)
    rows = ["| tissue | real share | phantom share | ratio | ratio, larger sample |", "|---|---|---|---|---|"]
    rows += [
        f"| {name} | {real[name]:.4f} | {share:.4f} | {result.ratio[name]:.2f} | {result.ratio_large[name]:.2f} |"
        for name, share in result.share.items()
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sections", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first section")
    parser.add_argument("--phantom-version", default=DEFAULT_VERSION)
    parser.add_argument("--mpp", type=float, default=6.7)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    seconds: list[float] = []

    def masks(pool: ProcessPoolExecutor) -> Iterator[Mask]:
        seeds = range(chosen.first, chosen.first + chosen.sections)
        for mask, took in pool.map(partial(draw, mpp=chosen.mpp, version=chosen.phantom_version), seeds):
            seconds.append(took)
            yield mask

    with ProcessPoolExecutor(chosen.jobs) as pool:
        result = calibrate(masks(pool))
    print(table(result))
    print(f"\nboundary correlation {result.correlation:.4f}; worst factor {result.worst_factor:.2f}")
    print(f"{chosen.sections} sections, {sum(seconds) / chosen.sections:.2f} s of processor time each")


if __name__ == "__main__":
    main()
