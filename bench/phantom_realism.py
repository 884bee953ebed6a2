"""How far synthetic sections resemble real ones: shares of tissues and borders; prints docs/phantom.md's table.

    python bench/phantom_realism.py --sections 200 --first 0 --phantom-version 1 --jobs 2

The two tables below are measurements of real masks of the skin dataset (one of the number of pixels, one of the
number of 4-neighbour pixel pairs with different labels), kept here as facts to compare with.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN, Mask, boundary_counts, boundary_share, pixel_counts
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import paint_section
from ntrm.phantom.versions import DEFAULT_VERSION

REAL_SHARE = dict(
    zip(
        SKIN.names,
        (0.0055, 0.0057, 0.0542, 0.2878, 0.0018, 0.0222, 0.1131, 0.0343, 0.3798, 0.0130, 0.0651, 0.0175),
        strict=True,
    )
)
"""Share of pixels in 833 mask tiles of 75 sections, background included."""

REAL_SHARE_LARGE = dict(
    zip(
        SKIN.names,
        (0.0050, 0.0060, 0.0520, 0.2820, 0.0020, 0.0210, 0.1260, 0.0360, 0.3730, 0.0160, 0.0610, 0.0210),
        strict=True,
    )
)
"""The same in a larger sample of 1200 tiles of 104 sections, known to three digits."""

REAL_BOUNDARY = (
    (0.0000, 0.0001, 0.1218, 0.0053, 0.0022, 0.3494, 0.0000, 0.4254, 0.0604, 0.0266, 0.0006, 0.0082),  # EPI
    (0.0002, 0.0000, 0.1582, 0.6640, 0.0423, 0.0908, 0.0000, 0.0000, 0.0430, 0.0013, 0.0000, 0.0002),  # GLD
    (0.0378, 0.0150, 0.0000, 0.1746, 0.0044, 0.0694, 0.0032, 0.0247, 0.1323, 0.2136, 0.1864, 0.1386),  # INF
    (0.0013, 0.0511, 0.1416, 0.0000, 0.0117, 0.1316, 0.3602, 0.0035, 0.2798, 0.0025, 0.0067, 0.0100),  # RET
    (0.0180, 0.1038, 0.1139, 0.3745, 0.0000, 0.1440, 0.0448, 0.1212, 0.0216, 0.0159, 0.0002, 0.0421),  # FOL
    (0.2435, 0.0193, 0.1560, 0.3645, 0.0125, 0.0000, 0.0004, 0.0036, 0.0598, 0.0319, 0.0016, 0.1070),  # PAP
    (0.0000, 0.0000, 0.0047, 0.6625, 0.0026, 0.0002, 0.0000, 0.0019, 0.3280, 0.0000, 0.0000, 0.0000),  # HYP
    (0.1390, 0.0000, 0.0260, 0.0046, 0.0049, 0.0017, 0.0014, 0.0000, 0.4892, 0.0078, 0.1897, 0.1356),  # KER
    (0.0143, 0.0031, 0.1009, 0.2633, 0.0006, 0.0203, 0.1678, 0.3544, 0.0000, 0.0209, 0.0314, 0.0228),  # BKG
    (0.0299, 0.0004, 0.7742, 0.0110, 0.0022, 0.0515, 0.0001, 0.0269, 0.0994, 0.0000, 0.0008, 0.0038),  # BCC
    (0.0004, 0.0000, 0.4445, 0.0196, 0.0000, 0.0017, 0.0000, 0.4295, 0.0981, 0.0005, 0.0000, 0.0056),  # SCC
    (0.0070, 0.0001, 0.3801, 0.0338, 0.0044, 0.1306, 0.0000, 0.3529, 0.0819, 0.0028, 0.0065, 0.0000),  # IEC
)
"""Of the borders of the row's tissue in the 833 tiles, the share with the column's; both in the order of the schema."""


@dataclass(frozen=True)
class Calibration:
    """Synthetic against real."""

    share: dict[str, float]  # Of the pixels that are not background
    ratio: dict[str, float]  # Share over the real share
    ratio_large: dict[str, float]  # Share over the real share in the larger sample
    boundary: NDArray[np.float64]  # Boundary shares, rows summing to 1
    correlation: float  # Pearson correlation with the real boundary shares over all pairs of different tissues

    @property
    def worst_factor(self) -> float:
        """The largest factor between a synthetic and a real share, either way round."""
        ratios = (*self.ratio.values(), *self.ratio_large.values())
        return max(max(ratio, 1.0 / max(ratio, 1e-9)) for ratio in ratios)


def tissue_share(pixels: dict[str, float]) -> dict[str, float]:
    """Shares of what is not background.

    >>> tissue_share({"RET": 3.0, "HYP": 1.0, "BKG": 6.0})
    {'RET': 0.75, 'HYP': 0.25}
    """
    tissue = {name: float(count) for name, count in pixels.items() if name != SKIN.background}
    total = sum(tissue.values())
    return {name: count / total for name, count in tissue.items()}


def boundary_correlation(boundary: NDArray[np.float64]) -> float:
    """Correlation of boundary shares with the real ones; the diagonal, empty by definition, is left out."""
    off = ~np.eye(len(SKIN), dtype=bool)
    return float(np.corrcoef(boundary[off], np.array(REAL_BOUNDARY)[off])[0, 1])


def calibrate(masks: Iterable[Mask]) -> Calibration:
    """Compare masks of the skin schema with the real ones."""
    pixels = np.zeros(len(SKIN), dtype=np.int64)
    pairs = np.zeros((len(SKIN), len(SKIN)), dtype=np.int64)
    for mask in masks:
        pixels += pixel_counts(mask, len(SKIN))[:-1]
        pairs += boundary_counts(mask, len(SKIN))
    if not pairs.any():
        raise UsageError("nothing to compare", got="no mask with a border", expected="masks of skin sections")
    share = tissue_share(dict(zip(SKIN.names, pixels.tolist(), strict=True)))
    boundary = boundary_share(pairs)
    return Calibration(
        share=share,
        ratio={name: share[name] / real for name, real in tissue_share(REAL_SHARE).items()},
        ratio_large={name: share[name] / real for name, real in tissue_share(REAL_SHARE_LARGE).items()},
        boundary=boundary,
        correlation=boundary_correlation(boundary),
    )


def draw(seed: int, mpp: float, version: str) -> tuple[Mask, float]:
    start = time.process_time()
    return paint_section(draw_plan(seed, version=version), mpp).mask, time.process_time() - start


def table(result: Calibration) -> str:
    real = tissue_share(REAL_SHARE)
    rows = ["| tissue | real share | phantom share | ratio | ratio, larger sample |", "|---|---|---|---|---|"]
    rows += [
        f"| {name} | {real[name]:.4f} | {share:.4f} | {result.ratio[name]:.2f} | {result.ratio_large[name]:.2f} |"
        for name, share in result.share.items()
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
