"""A slide's stains brought to those of the training sections before the network sees it, where a user asks for that."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError
from ntrm.data.stains import MACENKO, Matrix, StainError, Stains, estimate_stains, exchange, tissue_densities
from ntrm.familiarity.reference import Reference


@dataclass(frozen=True)
class StainNorm:
    """What the network saw of a slide; ``stain_norm`` in ``summary.json``."""

    method: str
    matrix: Matrix | None
    """By which the optical densities of red, green and blue were multiplied; None: the slide was left as it is."""
    reason: str = ""
    """Why it was left so."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """In words, where nothing was done."""
        return () if self.matrix is not None else (f"stains are as they were: {self.reason}",)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def wanted_stains(reference: Reference | None, method: str) -> Stains:
    """The stains of the training sections; refuses a model that does not tell them, since they are never guessed."""
    stains = None if reference is None else reference.stains
    if stains is None or (method == MACENKO and stains.vectors is None):
        got = "no reference" if reference is None else "a reference without stains" if stains is None else "one stain"
        raise RefusedError(
            "the model does not say how its training sections are stained",
            got=got,
            expected="the stains of its training sections, in its reference",
            hint="make the reference with `ntrm calibrate --model M --data DATA`, or segment without --stain-norm",
        )
    return stains


def normalise_stains(picture: NDArray[np.uint8], tissue: NDArray[np.bool_], wanted: Stains, method: str) -> StainNorm:
    """What to do with a slide that looks like ``picture`` from afar; nothing where its stains cannot be told."""
    try:
        return StainNorm(method, exchange(estimate_stains(tissue_densities(picture, tissue)), wanted, method))
    except StainError as error:
        return StainNorm(method, None, error.what)
