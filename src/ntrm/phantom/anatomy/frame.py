"""Where a picture's pixels lie in the skin, and strips of a section to paint on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import SKIN, Mask
from ntrm.phantom.noise import Field, derive, field_at, octaves, pixel_centres
from ntrm.phantom.tissues import fine_mask

EPI, GLD, INF, RET, FOL, PAP, HYP, KER, BKG, BCC, SCC, IEC = (np.uint8(i) for i in range(len(SKIN)))
Curve = NDArray[np.float32]  # A quantity along the skin surface, one value every ``Axis.STEP_UM``.
Positions = float | NDArray[np.float64]
Extents = dict[bytes, NDArray[np.float64]]
"""Least and greatest y and x in µm of all bodies of a kind, by where they are in the skin and how far they reach."""


@dataclass(frozen=True)
class Outline:
    """Points around a section in µm, and how far from them anything of it may lie."""

    y: NDArray[np.float64]
    x: NDArray[np.float64]
    reach_um: float

    def span(self, top_um: float, bottom_um: float) -> tuple[float, float] | None:
        """Leftmost and rightmost x that the section can reach between two rows."""
        near = (self.y > top_um - self.reach_um) & (self.y < bottom_um + self.reach_um)
        if not near.any():
            return None
        return float(self.x[near].min()) - self.reach_um, float(self.x[near].max()) + self.reach_um


@dataclass(frozen=True)
class PhantomGrid:
    """Pixels in µm. The origin is the top left corner; the noise of a section is fixed to the same µm."""

    shape: tuple[int, int]
    mpp: float
    origin_um: tuple[float, float] = (0.0, 0.0)

    def strips(self, outline: Outline, pixels: int = 1 << 18) -> Iterator[tuple[tuple[slice, slice], PhantomGrid]]:
        """Rectangles that together hold everything near the outline: memory stays small however fine the grid.

        >>> line = Outline(np.array([0.0, 2.0]), np.array([3.0, 4.0]), reach_um=1.0)
        >>> [at for at, _ in PhantomGrid((5, 10), 1.0).strips(line, pixels=20)]
        [(slice(0, 2, None), slice(2, 5, None)), (slice(2, 4, None), slice(3, 5, None))]
        """
        height, width = self.shape
        (top, left), step = self.origin_um, max(1, pixels // width)
        for first in range(0, height, step):
            last = min(first + step, height)
            span = outline.span(top + first * self.mpp, top + last * self.mpp)
            if span is not None:
                start = min(max(math.floor((span[0] - left) / self.mpp), 0), width)
                stop = max(min(math.ceil((span[1] - left) / self.mpp), width), start)
                origin = (top + first * self.mpp, left + start * self.mpp)
                if start < stop:
                    strip = PhantomGrid((last - first, stop - start), self.mpp, origin)
                    yield (slice(first, last), slice(start, stop)), strip

    def noise(self, seed: int, wavelength_um: float, count: int = 1) -> Field:
        """Smooth noise of about unit height on this grid."""
        return octaves(seed, self.shape, self.mpp, wavelength_um, count=count, origin_um=self.origin_um)

    @property
    def y_um(self) -> NDArray[np.float64]:
        """µm of the rows' centres."""
        return pixel_centres(self.shape[0], self.mpp, self.origin_um[0])

    @property
    def x_um(self) -> NDArray[np.float64]:
        """µm of the columns' centres."""
        return pixel_centres(self.shape[1], self.mpp, self.origin_um[1])


@dataclass(frozen=True)
class Axis:
    """The stretch of skin surface on which curves are tabulated: from ``-half_um`` to ``half_um``."""

    half_um: float

    STEP_UM = 1.0

    @cached_property
    def u(self) -> NDArray[np.float64]:
        """Positions in µm."""
        count = math.ceil(self.half_um / self.STEP_UM)
        return np.arange(-count, count + 1, dtype=np.float64) * self.STEP_UM

    def index(self, u: NDArray[np.floating[Any]]) -> NDArray[np.int32]:
        """Table index of each position; positions beyond the ends take the end's value."""
        nearest = np.rint((u - u.dtype.type(self.u[0])) / u.dtype.type(self.STEP_UM))
        return np.asarray(np.clip(nearest, 0, len(self.u) - 1), dtype=np.int32)

    def value(self, curve: Curve, u_um: float) -> float:
        """A curve's value at one position."""
        return float(curve[self.index(np.array([u_um]))[0]])


@dataclass(frozen=True)
class Fold:
    """A crease across the section: a strip of skin is hidden in it, so that the layers jump."""

    at_um: float
    hidden_um: float
    step_um: float
    lean: float  # How far the crease runs along the surface for each µm of depth
    wave_um: float = 40.0
    wave_wavelength_um: float = 700.0


@dataclass(frozen=True)
class Frame:
    """Skin coordinates: u runs along the surface, w is the depth below it, both in µm.

    The surface is an arc that faces ``angle_deg`` (0 = the top of the picture, clockwise), bent by a smooth
    displacement of the whole picture. ``radius_um`` is positive for a surface that bulges outward and negative
    for a hollow one. The middle of the surface lies at the origin of the µm coordinates.
    """

    seed: int
    angle_deg: float
    radius_um: float
    warp_um: float = 120.0
    warp_wavelength_um: float = 4000.0
    fold: Fold | None = None

    def to_skin(self, grid: PhantomGrid) -> tuple[Field, Field]:
        """(u, w) of every pixel."""
        y, x = grid.y_um[:, None].astype(np.float32), grid.x_um[None, :].astype(np.float32)
        y = y + np.float32(self.warp_um) * grid.noise(derive(self.seed, "warp", "y"), self.warp_wavelength_um)
        x = x + np.float32(self.warp_um) * grid.noise(derive(self.seed, "warp", "x"), self.warp_wavelength_um)
        sine, cosine = sine_cosine(self.angle_deg)
        along, below = x * cosine + y * sine, y * cosine - x * sine
        radius, side = np.float32(self.radius_um), np.float32(math.copysign(1.0, self.radius_um))
        u = abs(radius) * np.arctan2(along, side * (radius - below))
        w = side * (abs(radius) - np.hypot(along, radius - below))
        if (fold := self.fold) is None:
            return u, w
        crease = np.float32(fold.wave_um) * grid.noise(derive(self.seed, "fold"), fold.wave_wavelength_um, 3)
        beyond = u > np.float32(fold.at_um) + np.float32(fold.lean) * w + crease
        hidden, step = beyond * np.float32(fold.hidden_um), beyond * np.float32(fold.step_um)
        return np.asarray(u + hidden, dtype=np.float32), np.asarray(w + step, dtype=np.float32)

    def to_picture(self, u_um: Positions, w_um: Positions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(y, x) in µm of points of the skin: the inverse of ``to_skin``, good to a µm."""
        u, w = np.broadcast_arrays(np.atleast_1d(u_um).astype(np.float64), w_um)
        if self.fold is not None:
            beyond = u > self.fold.at_um + self.fold.hidden_um + self.fold.lean * w
            u, w = u - beyond * self.fold.hidden_um, w - beyond * self.fold.step_um
        sine, cosine = map(float, sine_cosine(self.angle_deg))
        arm = self.radius_um - w
        along, below = arm * np.sin(u / self.radius_um), self.radius_um - arm * np.cos(u / self.radius_um)
        straight_y, straight_x = below * cosine + along * sine, along * cosine - below * sine
        y, x = straight_y, straight_x
        for _ in range(10):  # The warp is gentle: each step at least halves what is left.
            y, x = straight_y - self._warp("y", y, x), straight_x - self._warp("x", y, x)
        return y, x

    def _warp(self, direction: str, y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
        # ``octaves``, behind ``PhantomGrid.noise``, derives the seed of its first octave by 0.
        seed = derive(derive(self.seed, "warp", direction), 0)
        return self.warp_um * field_at(seed, y, x, self.warp_wavelength_um).astype(np.float64)


def sine_cosine(degrees: float) -> tuple[np.float32, np.float32]:
    """Of an angle in degrees."""
    angle = math.radians(degrees)
    return np.float32(math.sin(angle)), np.float32(math.cos(angle))


@dataclass(frozen=True)
class Patch:
    """A rectangle of a strip with the skin coordinates inside it."""

    labels: Mask  # A view: painting here paints the strip
    kinds: Mask  # The same for the kinds of fine tissue
    u: Field
    v: Field
    rough: Field  # Fine noise of about unit height, for outlines
    slow: Field  # Coarser noise of about unit height, for shapes

    def uneven(self, roughness: float) -> Field:
        """Irregularity of an outline."""
        return np.asarray(np.float32(0.35 * roughness) * self.rough + np.float32(roughness) * self.slow)


class Body(Protocol):
    """Something at a point of the skin, with an outline that stays within its reach."""

    @property
    def u_um(self) -> float:
        """Along the surface."""

    @property
    def v_um(self) -> float:
        """Below the surface."""

    @property
    def reach_um(self) -> float:
        """How far it extends."""

    def outside(self, patch: Patch) -> Field:
        """Negative inside, positive outside, in units of the body's radius."""


@dataclass(frozen=True)
class Wobble:
    """Irregularity that all borders share: none of them is ever a smooth mathematical line."""

    fine_um: float = 5.0
    fine_wavelength_um: float = 90.0
    sway_um: float = 28.0
    sway_wavelength_um: float = 380.0


@dataclass
class Skin:
    """A strip of a section while it is painted.

    ``u`` runs along the surface; ``w`` is the depth below the smooth baseline and ``v`` the depth below the true
    surface, which bulges over lesions. Only ``mask`` and ``kinds`` change after construction.
    """

    grid: PhantomGrid
    frame: Frame
    axis: Axis
    lift: Curve
    wobble: Wobble = Wobble()
    extents: Extents = field(default_factory=dict)  # Found so far; the strips of a section share them

    def __post_init__(self) -> None:
        self.u, self.w = self.frame.to_skin(self.grid)
        self._index = self.axis.index(self.u)
        self.v: Field = self.w + self.along(self.lift) + self._fine
        self.mask: Mask = np.full(self.grid.shape, BKG, dtype=np.uint8)
        self.kinds: Mask = np.zeros(self.grid.shape, dtype=np.uint8)

    @property
    def fine(self) -> Mask:
        """What was painted, labels and kinds in one."""
        return fine_mask(self.kinds, self.mask) if self.kinds.any() else self.mask

    def along(self, curve: Curve) -> Field:
        """The curve's value at every pixel."""
        return curve[self._index]

    def along_bent(self, curve: Curve) -> Field:
        """The same, followed along swaying lines instead of straight verticals: ridges lean and overhang."""
        return curve[self.axis.index(self.u + self.sway + np.float32(2.0) * self._fine)]

    def noise(self, name: str, wavelength_um: float, count: int = 1) -> Field:
        """A noise field of this section, known by its name."""
        return self.grid.noise(derive(self.frame.seed, name), wavelength_um, count)

    @cached_property
    def sway(self) -> Field:
        """Slow irregularity in µm for the borders inside the dermis."""
        return np.asarray(self.noise("sway", self.wobble.sway_wavelength_um, 3) * np.float32(self.wobble.sway_um))

    @cached_property
    def _fine(self) -> Field:
        return np.asarray(self.noise("fine", self.wobble.fine_wavelength_um, 2) * np.float32(self.wobble.fine_um))

    def patches(self, bodies: Sequence[Body]) -> Iterator[tuple[int, Patch]]:
        """For each body that reaches into this strip: its number and the pixels within its reach."""
        if not bodies:
            return
        height, width = self.grid.shape
        boxes = np.floor((self.extents_um(bodies) - np.repeat(self.grid.origin_um, 2)) / self.grid.mpp)
        for number, (top, bottom, left, right) in enumerate(boxes.astype(np.int64).tolist()):
            rows = slice(max(0, top), min(height, bottom + 1))
            columns = slice(max(0, left), min(width, right + 1))
            if rows.start < rows.stop and columns.start < columns.stop:
                yield number, self.patch(rows, columns)

    def extents_um(self, bodies: Sequence[Body]) -> NDArray[np.float64]:
        """Least and greatest y and x of each body."""
        where = np.array([(body.u_um, body.v_um, body.reach_um) for body in bodies])
        key = where.tobytes()
        if key not in self.extents:
            # Of a ring around each body, bent as the skin is bent. A ring of points is a little narrower than its
            # circle, and the skin bends between them.
            u, v, reach = where.T[..., None]
            angle, reach = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False), 1.15 * reach
            ring_u, ring_v = u + reach * np.cos(angle), v + reach * np.sin(angle)
            y, x = self.frame.to_picture(ring_u, ring_v - self.lift[self.axis.index(u)])  # (bodies, ring points)
            self.extents[key] = np.stack([y.min(axis=1), y.max(axis=1), x.min(axis=1), x.max(axis=1)], axis=1)
        return self.extents[key]

    def patch(self, rows: slice, columns: slice) -> Patch:
        """The pixels of a rectangle."""
        at = (rows, columns)
        rough = self._fine[at] / np.float32(self.wobble.fine_um)
        slow = self.sway[at] / np.float32(self.wobble.sway_um)
        return Patch(self.mask[at], self.kinds[at], self.u[at], self.v[at], rough, slow)
