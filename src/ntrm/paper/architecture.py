"""The architecture of an NTRM as a drawing: its blocks with the channels and sizes that one real forward pass has."""

from __future__ import annotations

import copy
import math
from contextlib import ExitStack
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ntrm.core.errors import UsageError
from ntrm.models.base import SegmentationModel
from ntrm.models.ntrm import NTRM
from ntrm.report.drawing import FAINT, INK, new_figure

WINDOW = 256
COLUMNS = {"image": 1.5, "E": 1.5, "D1": 3.6, "D2": 5.1, "φ": 7.15, "TRM": 7.15, "coarse": 9.2, "D2'": 9.2}
COLUMNS |= {"D3": 10.6, "D4": 12.0, "D5": 13.4, "final": 14.9}
COLOURS = {"E": "#dbe7f3", "D": "#e3efdd", "φ": "#fdebd0", "T": "#f3d9ea"}
RIGHT_UP, DOWN_RIGHT = "angle,angleA=0,angleB=90", "angle,angleA=90,angleB=0"


def stage_sizes(network: NTRM) -> dict[str, tuple[int, ...]]:
    """Channels, height and width of every stage of an NTRM: image, E1 … E5, φ, D1 … D5, D2', coarse and final."""
    network = copy.deepcopy(network).cpu().eval()
    sizes: dict[str, tuple[int, ...]] = {"image": (3, WINDOW, WINDOW)}

    def note(names: list[str]) -> Any:
        def hook(_: nn.Module, __: object, output: Any) -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            found = (tensor for tensor in tensors if isinstance(tensor, Tensor))
            sizes.update((name, tuple(tensor.shape[1:])) for name, tensor in zip(names, found, strict=False))

        return hook

    decoder = [*network.upper.blocks, *network.lower.blocks]
    blocks: list[tuple[nn.Module, list[str]]] = [
        (network.encoder, ["E1", "E2", "E3", "E4", "E5"]),
        (network.coarse, ["φ"]),
        *((block, [f"D{number}"]) for number, block in enumerate(decoder, start=1)),
        *([] if network.relation is None else [(network.relation, ["D2'"])]),
    ]
    with ExitStack() as hooks, torch.inference_mode():
        for block, names in blocks:
            hooks.callback(block.register_forward_hook(note(names)).remove)
        output = network(torch.zeros(1, 3, WINDOW, WINDOW))
    return sizes | {"coarse": tuple(output.coarse.shape[1:]), "final": tuple(output.final.shape[1:])}


def connections(network: NTRM) -> list[tuple[str, str, str]]:
    """Which block feeds which, and how its arrow bends."""
    straight = "arc3"
    trunk = [*zip(("image", "E1", "E2", "E3", "E4"), ("E1", "E2", "E3", "E4", "E5"), strict=True)]
    refined = "D2" if network.relation is None else "D2'"
    upwards = [("E5", "D1"), ("D1", "D2"), (refined, "D3"), ("D3", "D4"), ("D4", "D5")]
    skips = [("E4", "D1"), ("E3", "D2"), ("E2", "D3"), ("E1", "D4")]
    found = [(*pair, straight) for pair in [*trunk, *skips, ("D5", "final"), ("φ", "coarse")]]
    found += [(*pair, RIGHT_UP) for pair in upwards]
    found.append(("D2", "φ", DOWN_RIGHT) if network.coarse_from == "d2" else ("E5", "φ", RIGHT_UP))
    if network.relation is not None:
        found += [("D2", "TRM", straight), ("φ", "TRM", straight), ("TRM", "D2'", straight)]
        found.append(("D2", "D2'", "bar,armA=0,armB=0,fraction=-0.2"))
    return found


def architecture_figure(network: SegmentationModel) -> Figure:
    """Encoder at the left, decoder rising to the right, the relation of tissues between D2 and D2'.

    Rows are scales: the fraction of the window's side. Dashed arrows are skip connections.
    """
    config = network.config
    if not isinstance(network, NTRM):
        expected = "ntrm-paper or ntrm-control"
        raise UsageError("only NTRM's own architecture can be drawn", got=config.arch, expected=expected)
    sizes = stage_sizes(network)
    figure = new_figure(16, 7)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 16), ylim=(6.2, -1.2))
    axes.set_axis_off()
    rows = {name: math.log2(WINDOW / height) for name, (_, height, _) in sizes.items()}
    # The head stands below the module that it feeds, and its picture, of full size, beside it.
    rows |= {"φ": rows["D2"] + 1.15, "coarse": rows["D2"] + 1.15}
    texts = {name: f"{name}\n" + " × ".join(map(str, size)) for name, size in sizes.items()}
    if network.relation is not None:
        relation = network.relation.config
        kind = "Attn" if relation.layer == "attention" else "Sum"
        steps = "Proj (no messages)" if relation.graph == "none" else f"Edge · {kind} × {relation.layers} · Proj"
        texts["TRM"], rows["TRM"] = f"TRM: tissue relation\nReg · Node · Adj · Bnd\n{steps}", rows["D2"]
    boxes, centres = {}, {}
    for name, text in texts.items():
        centres[name] = COLUMNS["E" if name[0] == "E" else name], rows[name]
        style = {"boxstyle": "round,pad=0.5", "facecolor": COLOURS.get(name[0], "#f2f2f4"), "edgecolor": INK}
        box = axes.text(*centres[name], text, fontsize=8, color=INK, ha="center", va="center", bbox=style)
        boxes[name] = box.get_bbox_patch()
    for source, target, bend in connections(network):
        dashed = source[0] == "E" and bend == "arc3" and target[0] == "D"
        look: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linestyle": "--" if dashed else "-"}
        look |= {"connectionstyle": bend, "patchA": boxes[source], "patchB": boxes[target], "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", centres[target], centres[source], arrowprops=look)
    for row in sorted({row for name, row in rows.items() if name not in ("φ", "coarse")}):
        axes.text(0.2, row, "1" if row == 0 else f"1/{2**row:.0f}", fontsize=8.5, color=FAINT, va="center")
    options = ", ".join(f"{name} {value}" for name, value in config.options.items())
    title = config.arch + (f" ({options})" if options else "")
    parameters = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    note = f"{config.classes} tissues · {parameters:,.2f} million parameters · channels × height × width for a window"
    note += " of 256 × 256 · rows: share of the window's side · dashed: skip connections"
    axes.text(0.15, -0.95, title, fontsize=12, fontweight="bold", color=INK)
    axes.text(0.15, -0.65, note, fontsize=9, color=FAINT)
    return figure
