"""Random masks for the phantom's tests: blobs of chosen tissues, the same blobs at every resolution."""

import numpy as np

from ntrm.core.labels import SKIN
from ntrm.phantom import noise


def blobs(seed, shape, mpp, names, wavelength_um=400.0):
    """The tissue whose noise is highest wins."""
    fields = [noise.field(noise.derive(seed, "blob", name), shape, mpp, wavelength_um) for name in names]
    indices = np.array([SKIN.index(name) for name in names], dtype=np.uint8)
    return indices[np.argmax(np.stack(fields), axis=0)]


def layered(shape=(96, 96)):
    """Glass, keratin, epidermis, papillary and reticular dermis, fat, glass, from top to bottom."""
    names = ["BKG", "KER", "EPI", "PAP", "RET", "HYP", "BKG"]
    rows = np.repeat([SKIN.index(name) for name in names], -(-shape[0] // len(names)))[: shape[0]]
    return np.repeat(rows[:, None], shape[1], axis=1).astype(np.uint8)
