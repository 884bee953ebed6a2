"""Bodies that are painted into the skin: ellipses, bent capsules, and all of one tissue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ntrm.phantom.anatomy.frame import Body, Patch, Skin, sine_cosine
from ntrm.phantom.noise import Field
from ntrm.phantom.tissues import KINDS

MAX_UNEVEN = 3.5  # What the noise of an outline can reach, times its roughness


@dataclass(frozen=True)
class Blob:
    """An ellipse with an irregular outline."""

    u_um: float
    v_um: float
    radius_um: float
    flatness: float = 1.0  # Length over height; above 1 it lies flat along the surface when ``tilt_deg`` is 0
    tilt_deg: float = 0.0
    roughness: float = 0.12

    @property
    def reach_um(self) -> float:
        """Longest half-axis and room for the roughness."""
        return self.radius_um * math.sqrt(max(self.flatness, 1.0 / self.flatness)) * (1.0 + MAX_UNEVEN * self.roughness)

    def outside(self, patch: Patch) -> Field:
        """Relative distance minus one."""
        sine, cosine = sine_cosine(self.tilt_deg)
        du, dv = patch.u - np.float32(self.u_um), patch.v - np.float32(self.v_um)
        stretch = math.sqrt(self.flatness)
        long = (du * cosine + dv * sine) / np.float32(self.radius_um * stretch)
        short = (dv * cosine - du * sine) / np.float32(self.radius_um / stretch)
        return np.asarray(np.hypot(long, short) + patch.uneven(self.roughness) - np.float32(1.0))


@dataclass(frozen=True)
class Streak:
    """A bent capsule whose radius changes from one end to the other: follicles, tears, flakes."""

    top_u_um: float
    top_v_um: float
    length_um: float
    lean_deg: float  # Deviation from straight down, in degrees
    radii_um: tuple[float, ...]  # At even steps from the top to the end
    bend: float = 0.0  # Sideways shift of the end over the length
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

    def outside(self, patch: Patch) -> Field:
        """Distance from the centre line over the radius there, minus one."""
        sine, cosine = sine_cosine(self.lean_deg)
        du, dv = patch.u - np.float32(self.top_u_um), patch.v - np.float32(self.top_v_um)
        down = (du * sine + dv * cosine) / np.float32(self.length_um)
        along = np.clip(down, 0.0, 1.0)
        aside = du * cosine - dv * sine - np.float32(self.bend * self.length_um) * along**2
        beyond = (down - along) * np.float32(self.length_um)
        knots = np.linspace(0.0, 1.0, len(self.radii_um))
        radius = np.maximum(np.interp(along, knots, self.radii_um), 0.1).astype(np.float32)
        return np.asarray(np.hypot(aside, beyond) / radius + patch.uneven(self.roughness) - np.float32(1.0))


@dataclass(frozen=True)
class Structure:
    """All bodies of one kind in a section: which tissue they are, and over which tissues they may be painted."""

    name: str
    bodies: Sequence[Body]
    tissue: np.uint8 | None  # None leaves the labels as they are: the bodies are a fine tissue of whatever they lie in
    over: tuple[np.uint8, ...]
    fine: str = ""  # The fine tissue, if the label does not say all

    def paint(self, skin: Skin) -> None:
        """Label the inside of each body, where the labels so far are among ``over``."""
        allowed = np.zeros(256, dtype=bool)
        allowed[list(self.over)] = True
        kind = KINDS[self.fine] if self.fine else np.uint8(0)
        for number, patch in skin.patches(self.bodies):
            inside = (self.bodies[number].outside(patch) < 0) & allowed[patch.labels]
            patch.kinds[inside] = kind
            if self.tissue is not None:
                patch.labels[inside] = self.tissue
