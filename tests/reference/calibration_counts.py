"""Calibration counts of probabilities in numpy: what ``SectionAccumulator`` counts with torch, strip by strip."""

import numpy as np

from ntrm.metrics.calibration import CalibrationCounts


def calibration_counts(probabilities, truth, *, bins=15, axis=-3):
    """Counts of the pixels that are not ignored; ``axis`` is that of the classes."""
    known = truth != 255
    pixels, labels = np.moveaxis(np.asarray(probabilities, np.float64), axis, 0)[:, known], truth[known].astype(int)
    confidence, correct = pixels.max(axis=0), pixels.argmax(axis=0) == labels
    of_bin = np.minimum((confidence * bins).astype(int), bins - 1)
    return CalibrationCounts(
        pixels=np.bincount(of_bin, minlength=bins),
        correct=np.bincount(of_bin[correct], minlength=bins),
        confidence=np.bincount(of_bin, weights=confidence, minlength=bins),
        squares=float(((pixels - np.eye(len(pixels))[:, labels]) ** 2).sum()),
    )
