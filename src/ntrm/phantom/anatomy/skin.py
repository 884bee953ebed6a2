"""What every painter of the anatomy works on: the skin coordinates of a strip of pixels, and its labels so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ntrm.labels import SKIN, Mask
from ntrm.phantom.anatomy.frame import Axis, Curve, Frame, Grid
from ntrm.phantom.noise import Field, derive

EPI, GLD, INF, RET, FOL, PAP, HYP, KER, BKG, BCC, SCC, IEC = (np.uint8(i) for i in range(len(SKIN)))
Where = NDArray[np.bool_]

RING_POINTS = 16
RING_ROOM = 1.15
"""A ring of points is a little narrower than its circle, and the skin bends between them."""


@dataclass(frozen=True)
class Wobble:
    """Irregularity that all borders share: none of them is ever a smooth mathematical line."""

    fine_um: float = 5.0
    fine_wavelength_um: float = 90.0
    sway_um: float = 28.0
    sway_wavelength_um: float = 380.0


class Place(Protocol):
    """Something at a point of the skin that does not extend beyond its reach."""

    @property
    def u_um(self) -> float:
        """Along the surface."""

    @property
    def v_um(self) -> float:
        """Below the surface."""

    @property
    def reach_um(self) -> float:
        """How far it extends."""


@dataclass(frozen=True)
class Window:
    """A rectangle of a strip with the skin coordinates inside it."""

    labels: Mask
    """A view: painting here paints the strip."""
    u: Field
    v: Field
    rough: Field
    """Fine noise of about unit height, for outlines."""
    slow: Field
    """Coarser noise of about unit height, for shapes."""


@dataclass
class Skin:
    """A strip of a section while it is painted.

    ``u`` runs along the surface; ``w`` is the depth below the smooth baseline and ``v`` the depth below the true
    surface, which bulges over lesions. Only ``mask`` changes after construction.
    """

    grid: Grid
    frame: Frame
    axis: Axis
    lift: Curve
    wobble: Wobble = Wobble()

    def __post_init__(self) -> None:
        self.u, self.w = self.frame.to_skin(self.grid)
        self._index = self.axis.index(self.u)
        self.v: Field = self.w + self.along(self.lift) + self._fine
        self.mask: Mask = np.full(self.grid.shape, BKG, dtype=np.uint8)

    def along(self, curve: Curve) -> Field:
        """The curve's value at every pixel."""
        return curve[self._index]

    def along_bent(self, curve: Curve) -> Field:
        """The same, followed along swaying lines instead of straight verticals: ridges lean and overhang."""
        return curve[self._bent_index]

    def noise(self, name: str, wavelength_um: float, count: int = 1) -> Field:
        """A noise field of this section, known by its name."""
        return self.grid.noise(derive(self.frame.seed, name), wavelength_um, count)

    @cached_property
    def sway(self) -> Field:
        """Slow irregularity in µm for the borders inside the dermis."""
        field = self.noise("sway", self.wobble.sway_wavelength_um, 3)
        return np.asarray(field * np.float32(self.wobble.sway_um))

    @cached_property
    def _fine(self) -> Field:
        field = self.noise("fine", self.wobble.fine_wavelength_um, 2)
        return np.asarray(field * np.float32(self.wobble.fine_um))

    @cached_property
    def _bent_index(self) -> NDArray[np.int32]:
        return self.axis.index(self.u + self.sway + np.float32(2.0) * self._fine)

    def windows(self, places: Sequence[Place]) -> Iterator[tuple[int, Window]]:
        """For each place that reaches into this strip: its number and the pixels within its reach."""
        if not places:
            return
        for number, (top, bottom, left, right) in enumerate(self._boxes(places).tolist()):
            rows = slice(max(0, top), min(self.grid.shape[0], bottom + 1))
            columns = slice(max(0, left), min(self.grid.shape[1], right + 1))
            if rows.start < rows.stop and columns.start < columns.stop:
                yield number, self._window(rows, columns)

    def _boxes(self, places: Sequence[Place]) -> NDArray[np.int64]:
        """First and last row and column of each place: the bounds of a ring around it, bent as the skin is bent."""
        u, v, reach = np.array([(place.u_um, place.v_um, place.reach_um) for place in places]).T[..., None]
        angle = np.linspace(0.0, 2.0 * np.pi, RING_POINTS, endpoint=False)
        ring_u, ring_v = u + RING_ROOM * reach * np.cos(angle), v + RING_ROOM * reach * np.sin(angle)
        y, x = self.frame.to_picture(ring_u, ring_v - self.lift[self.axis.index(u)])  # (places, ring points)
        ends = np.stack([y.min(axis=1), y.max(axis=1), x.min(axis=1), x.max(axis=1)], axis=1)
        origin = np.array(self.grid.origin_um).repeat(2)
        return np.asarray(np.floor((ends - origin) / self.grid.mpp), dtype=np.int64)

    def _window(self, rows: slice, columns: slice) -> Window:
        at = (rows, columns)
        rough = self._fine[at] / np.float32(self.wobble.fine_um)
        return Window(self.mask[at], self.u[at], self.v[at], rough, self.sway[at] / np.float32(self.wobble.sway_um))
