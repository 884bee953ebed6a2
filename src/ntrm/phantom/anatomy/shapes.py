"""Bodies in the skin: blobs and tapering streaks, each evaluated only in the pixels it can reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ntrm.phantom.anatomy.frame import Place, Skin, Window
from ntrm.phantom.noise import Field

MAX_UNEVEN = 3.5
"""What the noise of an outline can reach, times its roughness."""


class Body(Place, Protocol):
    """A place with an outline."""

    def outside(self, window: Window) -> Field:
        """Negative inside, positive outside, in units of the body's radius."""


@dataclass(frozen=True)
class Blob:
    """An ellipse with an irregular outline."""

    u_um: float
    v_um: float
    radius_um: float
    flatness: float = 1.0
    """Length over height; above 1 it lies flat along the surface when ``tilt_deg`` is 0."""
    tilt_deg: float = 0.0
    roughness: float = 0.12

    @property
    def reach_um(self) -> float:
        """Longest half-axis and room for the roughness."""
        return self.radius_um * math.sqrt(max(self.flatness, 1.0 / self.flatness)) * (1.0 + MAX_UNEVEN * self.roughness)

    def outside(self, window: Window) -> Field:
        """Relative distance minus one."""
        sine, cosine = math.sin(math.radians(self.tilt_deg)), math.cos(math.radians(self.tilt_deg))
        du, dv = window.u - np.float32(self.u_um), window.v - np.float32(self.v_um)
        stretch = math.sqrt(self.flatness)
        long = (du * np.float32(cosine) + dv * np.float32(sine)) / np.float32(self.radius_um * stretch)
        short = (dv * np.float32(cosine) - du * np.float32(sine)) / np.float32(self.radius_um / stretch)
        return np.asarray(np.hypot(long, short) + _uneven(window, self.roughness) - np.float32(1.0))


@dataclass(frozen=True)
class Streak:
    """A bent capsule whose radius changes from one end to the other: follicles, tears, flakes."""

    top_u_um: float
    top_v_um: float
    length_um: float
    lean_deg: float
    """Deviation from straight down, in degrees."""
    radii_um: tuple[float, ...]
    """At even steps from the top to the end."""
    bend: float = 0.0
    """Sideways shift of the end over the length."""
    roughness: float = 0.1

    @property
    def u_um(self) -> float:
        """Middle along the surface."""
        return self.top_u_um + 0.5 * self.length_um * math.sin(math.radians(self.lean_deg))

    @property
    def v_um(self) -> float:
        """Middle below the surface."""
        return self.top_v_um + 0.5 * self.length_um * math.cos(math.radians(self.lean_deg))

    @property
    def reach_um(self) -> float:
        """Half the length and the widest radius."""
        return self.length_um * (0.5 + abs(self.bend)) + max(self.radii_um) * (1.0 + MAX_UNEVEN * self.roughness)

    def outside(self, window: Window) -> Field:
        """Distance from the centre line over the radius there, minus one."""
        sine, cosine = math.sin(math.radians(self.lean_deg)), math.cos(math.radians(self.lean_deg))
        du, dv = window.u - np.float32(self.top_u_um), window.v - np.float32(self.top_v_um)
        down = (du * np.float32(sine) + dv * np.float32(cosine)) / np.float32(self.length_um)
        along = np.clip(down, 0.0, 1.0)
        aside = du * np.float32(cosine) - dv * np.float32(sine) - np.float32(self.bend * self.length_um) * along**2
        beyond = (down - along) * np.float32(self.length_um)
        knots = np.linspace(0.0, 1.0, len(self.radii_um))
        radius = np.maximum(np.interp(along, knots, self.radii_um), 0.1).astype(np.float32)
        return np.asarray(np.hypot(aside, beyond) / radius + _uneven(window, self.roughness) - np.float32(1.0))


def _uneven(window: Window, roughness: float) -> Field:
    return np.asarray(np.float32(0.35 * roughness) * window.rough + np.float32(roughness) * window.slow)


def paint(skin: Skin, bodies: Sequence[Body], tissue: np.uint8, over: tuple[np.uint8, ...]) -> None:
    """Label the inside of each body, where the labels so far are among ``over``."""
    allowed = np.zeros(256, dtype=bool)
    allowed[list(over)] = True
    for number, window in skin.windows(bodies):
        inside = bodies[number].outside(window) < 0
        window.labels[inside & allowed[window.labels]] = tissue
