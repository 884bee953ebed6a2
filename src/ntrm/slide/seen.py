"""A slide's thumbnail, and what more than one judgement needs of it: measured once, on a coarser grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ntrm.resolution import Resolution
from ntrm.slide.glass import Densities, Picture, as_resolution, check_picture, glass_colour, optical_density
from ntrm.slide.places import Floats, Places, blurred, shrunk, spread

GRID_UM = 26.8
"""µm/px, about, of the coarser grid: a pen's stroke, a fold and a cell of fat are all wider."""
AVERAGED_UM = 18.0
"""Nuclei and dots of dirt go under in this average; strokes do not."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A picture (H, W, 3) of a slide at ``scale``, and its optical densities."""

    picture: Picture
    scale: Resolution

    @classmethod
    def of(cls, picture: Picture, mpp: float | Resolution) -> Seen:
        """Refuses what is no RGB picture."""
        check_picture(picture)
        return cls(picture, as_resolution(mpp))

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the picture."""
        return self.picture.shape[0], self.picture.shape[1]

    @property
    def factors(self) -> tuple[int, int]:
        """Rows and columns of the picture to one of the coarser grid."""
        return max(1, round(GRID_UM / self.scale.y)), max(1, round(GRID_UM / self.scale.x))

    @property
    def coarse(self) -> Resolution:
        """µm/px of the coarser grid."""
        down, across = self.factors
        return Resolution(self.scale.x * across, self.scale.y * down)

    @cached_property
    def glass(self) -> NDArray[np.float32]:
        """(3,) colour of empty glass."""
        return glass_colour(self.picture)

    @cached_property
    def density(self) -> Densities:
        """(H, W, 3)."""
        return optical_density(self.picture, self.glass)

    @cached_property
    def planes(self) -> tuple[Floats, Floats, Floats]:
        """Red, green and blue densities on the coarser grid."""
        red, green, blue = (shrunk(self.density[..., k], self.factors) for k in range(3))
        return red, green, blue

    @cached_property
    def averaged(self) -> tuple[Floats, Floats, Floats]:
        """The same without single nuclei."""
        red, green, blue = (blurred(plane, AVERAGED_UM, self.coarse) for plane in self.planes)
        return red, green, blue

    def shrunk(self, places: Places) -> Places:
        """Places of the picture on the coarser grid, by majority."""
        return np.asarray(shrunk(places, self.factors) > 0.5)

    def spread(self, places: Places) -> Places:
        """Places of the coarser grid in the picture."""
        return spread(places, self.factors, self.shape)
