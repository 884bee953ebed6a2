"""What the paper reports, on its own dataset: its numbers, and what its figures show, in our words."""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """A row of one of the paper's tables; None where it gives no number."""

    accuracy: float | None
    iou: float | None
    dice: float | None


TITLES = {
    "deeplabv3plus": "DeepLabV3+",
    "unet-vgg16": "U-Net (VGG)",
    "attention-unet": "Attention U-Net",
    "unet-resnet18": "U-Net (ResNet)",
    "mit-b0": "MiT (trained, B0)",
    "mit-b2": "MiT (trained, B2)",
    "ntrm-paper": "NTRM",
    "ntrm-control": "control, no TRM",
    "ntrm-released": "NTRM as its authors released it",
    "mit-trm": "MiT with the relation module",
}
"""Names for readers, by architecture."""

SYSTEMS = ("deeplabv3plus", "unet-vgg16", "attention-unet", "unet-resnet18", "mit-b2", "ntrm-paper")
"""The six systems of Table 1, in its order; the paper quotes the fifth, here it is trained."""

OURS, CONTROL = "ntrm-paper", "ntrm-control"

PRIMARY = "10x"  # The resolution of Table 1

TABLE_1 = {
    "deeplabv3plus": Reported(0.5061, 0.4191, 0.5038),
    "unet-vgg16": Reported(0.6708, 0.6002, 0.7051),
    "attention-unet": Reported(0.7326, 0.6326, 0.7438),
    "unet-resnet18": Reported(0.7368, 0.6763, 0.7674),
    "ntrm-paper": Reported(0.8106, 0.7288, 0.8163),
}
"""Table 1 by architecture."""

QUOTED_MIT = Reported(0.8310, 0.6530, None)
"""The Mix Transformer's row, which the paper quotes from Imran et al. and did not train."""

TABLE_2 = {"2x": Reported(0.7620, 0.6691, 0.7624), "5x": Reported(0.7920, 0.6991, 0.7924), PRIMARY: TABLE_1[OURS]}
"""Table 2: NTRM by resolution, by the names of the dataset's folders, which are downsample factors."""

FIGURES = {
    "pipeline": (
        "The paper's overview figure shows the way from the section through the convolutional encoder and the coarse "
        "segmentation to the tissue relation module and the final decoder."
    ),
    "architecture": (
        "The paper's architecture figure shows a ResNet-18 with features E1 to E5, the coarse segmentation read from "
        "them, and the relation module that refines D2 before the deeper decoder blocks."
    ),
    "trm": (
        "The paper's figure of the relation module shows regions from the coarse probabilities, nodes by masked "
        "pooling, edges between regions that touch, message passing, and the projection back onto the pixels, for "
        "INF, BKG, RET and HYP."
    ),
    "qualitative": (
        "The paper's comparison has rows of BCC, SCC and IEC, chosen to hold as many tissues as possible. It finds "
        "baselines that take basal tumour for SCC or background and scatter errors among INF, RET and FOL, and names "
        "fewer false positives of SCC as NTRM's gain."
    ),
    "improvement": (
        "The paper's figure shows the coarse prediction, the final one and the corrected pixels in green, with "
        "corrections near the BCC–RET and RET–HYP interfaces. It does not show the pixels that were broken."
    ),
    "ablation": "The paper has no ablation.",
}
"""Captions of the paper's figures in our words, by our figure."""


def dice_gains() -> list[float]:
    """Points of Dice by which the paper's NTRM is above each of the other systems that have one, the least first."""
    ours = TABLE_1[OURS].dice or 0
    return sorted(100 * (ours - row.dice) for arch, row in TABLE_1.items() if arch != OURS and row.dice is not None)
