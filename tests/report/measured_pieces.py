"""Pieces with measured lines, made by hand."""

from types import SimpleNamespace

from ntrm.results import documents
from ntrm.results.documents import Measure


def measured(key, line, value=1.0):
    return key, Measure(value, "mm", "", line)


def piece(number, line, value=1.0, box=(0, 0, 10, 10)):
    measurements = dict([measured("deep_clearance", line, value)])
    return SimpleNamespace(number=number, mask_box_px=documents.Box(*box), measurements=measurements)
