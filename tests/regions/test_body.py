"""The steps from tissue to the body of a piece, each against a literal search."""

import numpy as np
from scipy import ndimage
from skimage import measure
from tests.regions.blocks import KER, RIGHT, TOP, block

from ntrm.core.labels import SKIN
from ntrm.regions.body import body_sides, bulk_box, embedded, filled_inlets, without_holes
from ntrm.regions.runs import runs_of


def literal_inlets(body, step, radius_um, depth_um):
    """Closing and depth by distances of all pixels."""
    wide = np.pad(body, 60)
    near = ndimage.distance_transform_edt(~wide, sampling=step) <= radius_um
    closed = (ndimage.distance_transform_edt(near, sampling=step) > radius_um)[60:-60, 60:-60] | body
    closed = ndimage.binary_fill_holes(closed)
    away = ndimage.distance_transform_edt(closed, sampling=step)
    inlets, count = ndimage.label(closed & ~body)
    deep = [k for k in range(1, count + 1) if away[inlets == k].max() > depth_um]
    return body | np.isin(inlets, deep)


def test_only_narrow_and_deep_inlets_are_filled(random):
    body = np.zeros((90, 150), dtype=bool)
    body[10:80, 10:140] = True
    body[40:80, 40:44] = False  # deep and narrow
    body[76:80, 70:74] = False  # shallow
    body[40:80, 95:115] = False  # wide
    step = np.array([5.0, 5.0])
    found = filled_inlets(runs_of(body), step, 30, 80).dense()
    assert found[40:75, 40:44].all()
    assert np.array_equal(found[:, 50:], body[:, 50:])
    ragged = body & ~ndimage.binary_dilation(random.random(body.shape) < 0.01, np.ones((5, 2)))
    step = np.array([4.0, 7.0])
    ragged = without_holes(runs_of(ragged))
    expected = literal_inlets(ragged.dense(), step, 30, 60)
    np.testing.assert_array_equal(filled_inlets(ragged, step, 30, 60).dense(), expected)


def test_holes_are_what_the_frame_does_not_reach(random):
    mask = np.pad(random.random((20, 30)) < 0.6, 1)
    expected = ndimage.binary_fill_holes(mask)
    np.testing.assert_array_equal(without_holes(runs_of(mask)).dense(), expected)


def test_the_ring_is_that_of_a_contour_finder(random):
    parts, _ = ndimage.label(np.pad(random.random((24, 30)) < 0.62, 1))
    body = ndimage.binary_fill_holes(parts == np.bincount(parts[parts > 0]).argmax())
    sides, inner, outer = body_sides(runs_of(body))
    assert body[tuple(inner.T)].all()
    assert not body[tuple(outer.T)].any()
    ring = max(measure.find_contours(body.astype(float), 0.5, fully_connected="low"), key=len)[:-1]
    start = int(np.flatnonzero((ring == sides[0]).all(axis=1))[0])
    ring = np.roll(ring, -start, axis=0)
    if not np.array_equal(ring[1], sides[1]):
        ring = np.roll(ring[::-1], 1, axis=0)
    np.testing.assert_array_equal(sides, ring)


def test_the_bulk_has_no_spurs():
    body = np.zeros((90, 150), dtype=bool)
    body[20:80, 30:120] = True
    body[40:44, :] = True
    found = bulk_box(runs_of(body), np.array([5.0, 5.0]))
    assert np.abs(found - [20, 30, 79, 119]).max() <= 1  # A disc enters the mouth of a spur a little.
    body[:] = False
    body[40:44, 10:140] = True
    assert bulk_box(runs_of(body), np.array([5.0, 5.0])) is None


def test_pearls_are_embedded_and_covering_keratin_is_not():
    mask = block()
    mask[40:50, 60:70] = KER
    mask[60:70, RIGHT - 8 : RIGHT] = KER
    runs = runs_of(mask)
    flags = embedded(runs, runs.value == KER, (runs.value != KER) & (runs.value < len(SKIN)))
    found = np.repeat(flags, runs.length).reshape(mask.shape)
    assert found[40:50, 60:70].all()
    assert found[60:70, RIGHT - 8 : RIGHT].all()
    assert not found[:TOP].any()
