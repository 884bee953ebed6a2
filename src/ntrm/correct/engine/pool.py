"""What a network saw in each part of a section, pooled window by window.

Windows overlap. With the blending weight a_w(x) of window w at pixel x, as in ``ntrm.models.windows``, the
feature of a node V is

    f(V) = Σ_w Σ_{x ∈ V ∩ w} a_w(x) · f_w(x)  /  Σ_w Σ_{x ∈ V ∩ w} a_w(x)

Features on a coarser grid than the pixels' count at every pixel that their cell covers. Only the sums are held: a node
takes some hundred numbers, whatever the size of the slide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from ntrm.core.arrays import Bytes as Image
from ntrm.core.arrays import Floats
from ntrm.correct.engine.graph import Features
from ntrm.correct.engine.parts import Parts, Pixels
from ntrm.data.tiles import Window
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Stitching

Read = Callable[[Window], Image]
DENSITY = -np.log10((np.arange(256) + 1) / 256)  # Optical density of a grey level
HALO = 3  # Pixels that the blur of the density reaches


def smooth_density(read: Read, height: int, width: int) -> Pixels:
    """Reads the optical density of rows of a section, slightly blurred: single pixels make no border."""
    from scipy.ndimage import gaussian_filter

    def rows(top: int, count: int) -> Features:
        above, below = min(top, HALO), min(height - top - count, HALO)
        seen = read(Window(top - above, 0, above + count + below, width))
        density = DENSITY[seen].astype(np.float32)
        # A Gaussian of one pixel.
        blurred = gaussian_filter(density, (1.0, 1.0, 0.0), truncate=HALO, mode="nearest")
        return np.asarray(blurred[above : above + count])

    return rows


class Pooling:
    """Means over each part: features of the network, ``probabilities``, and ``colour``.

    A colour is the optical density of red, green and blue light: three means, three standard deviations. Windows are
    taken in batch by batch.
    """

    def __init__(self, predictor: Predictor, parts: Parts, stitching: Stitching) -> None:
        self._predictor, self._parts = predictor, parts
        self._window_weights = stitching.weights().numpy().astype(np.float64)
        self._weight = np.zeros(len(parts.table))
        self._sums: dict[str, Floats] = {}

    def add(self, windows: Sequence[Window], tiles: Image) -> None:
        """Take some windows in, with their pixels (B, S, S, 3)."""
        from scipy.sparse import csr_array

        with features_of(self._predictor) as seen:
            final = self._predictor.probabilities(tiles).final
            layers = {"probabilities": final, **seen()}
        for number, window in enumerate(windows):
            nodes = self._parts.runs.window(window.top, window.left, window.height, window.width).dense()
            own = {name: layer[number].float().cpu().numpy() for name, layer in layers.items()}
            density = DENSITY[tiles[number]].transpose(2, 0, 1)
            own["colour"] = np.concatenate([density, density**2])
            row, column = np.nonzero(nodes >= 0)
            here, of = np.unique(nodes[row, column], return_inverse=True)
            weight = self._window_weights[row, column]
            self._weight[here] += np.bincount(of, weight, len(here))
            side = max(layer.shape[1] for layer in own.values())
            for name, layer in own.items():
                # A layer's grid is that of the pixels or coarser by a whole factor; padding may follow the pixels.
                depth, tall, wide = layer.shape
                step = side // tall
                at = (row // step) * wide + column // step
                pooling = csr_array((weight, (of, at)), shape=(len(here), tall * wide))  # entries of one cell add up
                total = self._sums.setdefault(name, np.zeros((len(self._weight), depth)))
                total[here] += pooling @ layer.reshape(depth, -1).T.astype(np.float64)

    def means(self) -> dict[str, Features]:
        """(N, D) by name; nodes that no window showed have 0."""
        weight = np.where(self._weight > 0, self._weight, 1.0)[:, None]
        means = {name: total / weight for name, total in self._sums.items()}
        if not all(np.isfinite(values).all() for values in means.values()):
            raise self._predictor.broken_network()
        if not means:
            means = {"probabilities": np.zeros((0, self._predictor.config.classes)), "colour": np.zeros((0, 6))}
        # The standard deviation in place of the mean square of the density.
        mean, square = np.split(means["colour"], 2, axis=1)
        means["colour"] = np.concatenate([mean, np.sqrt(np.maximum(square - mean**2, 0.0))], axis=1)
        return {name: values.astype(np.float32) for name, values in means.items()}


@contextmanager
def features_of(predictor: Predictor) -> Iterator[Callable[[], dict[str, Tensor]]]:
    """Within the block, the function it yields returns the features of the latest batch, by group, (B, D, H', W') each.

    A network without a classifier of its own, or without D2, does not have that group.
    """
    network = predictor.network
    done: list[dict[str, Tensor]] = []
    current: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        current[name] = inputs[0].detach()

    def finish(*_: object) -> None:
        # A batch that ran out of memory half way, and is tried again by halves, never comes here.
        done.append(dict(current))

    def take() -> dict[str, Tensor]:
        taken = {name: torch.cat([batch[name] for batch in done]) for name in (done[0] if done else ())}
        done.clear()
        return taken

    # D2 is what the rest of the decoder takes.
    below = getattr(network, "lower", None) or (
        getattr(network, "decoder", None) if hasattr(network, "relation") else None
    )
    inside = {"related": below, "last": getattr(network, "classify", None)}
    modules = {name: module for name, module in inside.items() if isinstance(module, nn.Module)}
    hooks = [module.register_forward_pre_hook(partial(keep, name)) for name, module in modules.items()]
    hooks.append(network.register_forward_hook(finish))
    try:
        yield take
    finally:
        for hook in hooks:
            hook.remove()
