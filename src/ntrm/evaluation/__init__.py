"""Trained networks on whole sections: scores, calibration, comparisons, the cancers of a section."""
