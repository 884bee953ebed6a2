"""A slide's stains brought to those of the training sections before the network sees it, where a user asks for that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError
from ntrm.data.stains import MACENKO, StainError, Stains, estimate_stains, exchange, tissue_densities
from ntrm.familiarity.reference import Reference
from ntrm.results.documents import StainNorm


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
    """How to change the stains of a slide with this thumbnail; not at all where they cannot be estimated."""
    try:
        return StainNorm(method, exchange(estimate_stains(tissue_densities(picture, tissue)), wanted, method))
    except StainError as error:
        return StainNorm(method, None, error.what)
