"""Measure how far the phantom resembles the real masks, over many sections; prints the table of docs/phantom.md.

python bench/phantom_calibration.py [sections] [processes]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from bench.phantom_realism import REAL_SHARE, Calibration, calibrate, tissue_share

from ntrm.core.labels import Mask
from ntrm.phantom.layout import layout


def draw(seed: int) -> tuple[Mask, float]:
    start = time.process_time()
    return layout(seed).mask, time.process_time() - start


def table(result: Calibration) -> str:
    real = tissue_share(REAL_SHARE)
    rows = ["| tissue | real share | phantom share | ratio | ratio, larger sample |", "|---|---|---|---|---|"]
    rows += [
        f"| {name} | {real[name]:.4f} | {share:.4f} | {result.ratio[name]:.2f} | {result.ratio_large[name]:.2f} |"
        for name, share in result.share.items()
    ]
    return "\n".join(rows)


def main(sections: int = 200, processes: int = 2) -> None:
    seconds: list[float] = []

    def masks(pool: ProcessPoolExecutor) -> Iterator[Mask]:
        for mask, took in pool.map(draw, range(sections)):
            seconds.append(took)
            yield mask

    with ProcessPoolExecutor(processes) as pool:
        result = calibrate(masks(pool))
    print(table(result))
    print(f"\nboundary correlation {result.correlation:.4f}; worst factor {result.worst_factor:.2f}")
    print(f"{sections} sections, {sum(seconds) / sections:.2f} s of processor time each")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
