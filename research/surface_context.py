"""What a network takes epidermis for where the surface beside it is hidden: by its look, or by glass next to it?

    python research/surface_context.py --weights study/weights/long-half_10x_0.pt … --laid laid --out context.json \\
      --sections sections --smallest 6

Section A1-1 has glass where tiles are missing. Here these places hold dermis next to known dermis (``dermis``), or the
section mirrored at the border of its tiles, so that tissue closes over much of the surface (``mirrored``). The pixels
that are scored are the same ones each time, and their picture does not change. The same mirror is held to the smallest
sections of the phantom's validation part, at the border of their tissue.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from numpy.typing import NDArray
from research.carry_over import SECTION, probabilities
from research.phantom_sections import Sections, load_sections
from research.skin_pas import TISSUES, Laid, score
from scipy import ndimage

from ntrm.core.io import write_json
from ntrm.core.labels import CANCERS, SKIN
from ntrm.models.base import SegmentationModel
from ntrm.models.registry import create

MIRRORED_UM, DERMIS_UM = 200.0, 400.0
"""How far from known places missing ones are filled."""
DERMIS = TISSUES.index("dermis")

Picture = NDArray[np.uint8]


def fillings(laid: Laid) -> dict[str, Picture]:
    """The section's picture with its missing places filled in several ways."""
    mirror = Mirror.at(laid.there, laid.mpp)
    some = np.argwhere(laid.there & (laid.truth == DERMIS))
    chosen = some[np.random.default_rng(0).integers(len(some), size=laid.there.shape)]
    seen = laid.there[mirror.across] & (laid.truth[mirror.across] == DERMIS)
    dermis = np.where(seen[..., None], laid.image[mirror.across], laid.image[chosen[..., 0], chosen[..., 1]])
    near_dermis = (laid.truth[mirror.nearest] == DERMIS) & (mirror.distance_um <= DERMIS_UM) & ~laid.there
    return {
        "glass": laid.image,
        "dermis": np.where(near_dermis[..., None], dermis, laid.image),
        "mirrored": mirror.closed(laid.image),
    }


class Mirror(NamedTuple):
    """A mirror along the border of what is ``there``; indices of (H, W) pixels for each pixel."""

    there: NDArray[np.bool_]
    distance_um: NDArray[np.float64]
    nearest: tuple[NDArray[np.intp], ...]
    across: tuple[NDArray[np.intp], ...]
    """The place seen in the mirror, or the edge of the picture."""

    @classmethod
    def at(cls, there: NDArray[np.bool_], mpp: float) -> Mirror:
        distance, nearest = ndimage.distance_transform_edt(~there, return_indices=True)
        beyond = 2 * nearest - np.indices(there.shape)
        across = tuple(np.clip(beyond[axis], 0, size - 1) for axis, size in enumerate(there.shape))
        return cls(there, distance * mpp, tuple(nearest), across)

    def closed(self, picture: Picture) -> Picture:
        """The picture with the mirror's in place of what is not there."""
        seen = np.where(self.there[self.across][..., None], picture[self.across], picture[self.nearest])
        return np.where((~self.there & (self.distance_um <= MIRRORED_UM))[..., None], seen, picture)


def phantom_epidermis(network: SegmentationModel, sections: Sections, mpp: float) -> dict[str, list[float]]:
    """Share of the phantom's epidermis called each tissue, as it is and with the surface closed."""
    counts = {name: np.zeros(len(SKIN)) for name in ("as it is", "mirrored")}
    for image, mask in zip(*sections, strict=True):
        epidermis = (mask == SKIN.index("EPI")).numpy()
        picture = image.permute(1, 2, 0).numpy()
        closed = Mirror.at((mask != SKIN.index("BKG")).numpy(), mpp).closed(picture)
        for name, each in zip(counts, (picture, closed), strict=True):
            counts[name] += np.bincount(_called(network, each)[0][epidermis], minlength=len(SKIN))
    return {name: (count / count.sum()).tolist() for name, count in counts.items()}


def _called(network: SegmentationModel, picture: Picture) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    confidence, predicted = probabilities(network, torch.from_numpy(picture).permute(2, 0, 1).contiguous()).max(0)
    return predicted.byte().numpy(), confidence.clamp(max=1).numpy()


def read_network(path: Path) -> SegmentationModel:
    """Weights that ``research/carry_over.py`` left, of half width."""
    weights = {name: value.float() for name, value in torch.load(path).items()}
    related = any(name.startswith("relation.") for name in weights)
    network = create("ntrm-paper" if related else "ntrm-control", SKIN, width=0.5)
    network.load_state_dict(weights)
    return network.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, nargs="+", required=True)
    parser.add_argument("--laid", type=Path, required=True)
    parser.add_argument("--sections", type=Path, help="of research/carry_over.py draw")
    parser.add_argument("--smallest", type=int, default=6, help="sections of the validation part")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    laid = Laid.read(asked.laid / f"{SECTION}-6.7.npz")
    rows: dict[str, dict[str, Any]] = {}
    for path in asked.weights:
        network = read_network(path)
        rows[path.stem] = row = {name: score(laid, *_called(network, each)) for name, each in fillings(laid).items()}
        for name, found in row.items():
            print(path.stem, name, *(f"{found[key]:.3f}" for key in ("iou", "epidermis_right", "epidermis_cancer")))
        if asked.sections:
            known = load_sections(asked.sections, "10x", "val", "cpu")
            small = sorted(range(len(known.masks)), key=lambda number: known.masks[number].numel())[: asked.smallest]
            some = Sections(*([each[number] for number in small] for each in known))
            row["phantom"] = phantom_epidermis(network, some, laid.mpp)
            for name, shares in row["phantom"].items():
                print(
                    path.stem, "phantom", name, *(f"{shares[SKIN.index(tissue)]:.3f}" for tissue in ("EPI", *CANCERS))
                )
        write_json(asked.out, rows)


if __name__ == "__main__":
    main()
