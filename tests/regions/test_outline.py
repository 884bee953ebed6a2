"""Which sides of an outline are surface and which were cut, on hand-made blocks."""

import numpy as np
import pytest
from scipy import ndimage
from skimage import measure
from tests.regions.blocks import BOTTOM, KER, LEFT, RIGHT, SCC, TOP, block, far_apart

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.regions.nearest import farthest, nearest_of
from ntrm.regions.outline import body_sides, bulk_box, embedded, filled_inlets, trace_outline, without_holes
from ntrm.regions.runs import runs_of
from ntrm.regions.surface import bridge_plugs

MPP = Resolution.square(6.7)


def test_the_surface_is_the_top_of_a_block_and_the_rest_is_cut():
    outline = trace_outline(runs_of(block()), SKIN, MPP)
    assert set(outline.outer[outline.is_surface][:, 0]) == {TOP - 1}
    assert sorted(outline.outer[outline.is_surface][:, 1]) == list(range(LEFT, RIGHT))
    assert (~outline.is_surface).sum() == (RIGHT - LEFT) + 2 * (BOTTOM - TOP)
    assert np.allclose(np.hypot(*outline.normals.T), 1.0)
    assert outline.fragments == 1


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


def test_pearls_are_embedded_and_no_surface_and_covering_keratin_is_not():
    mask = block()
    mask[30:80, 120:RIGHT] = SCC
    plain = trace_outline(runs_of(mask), SKIN, MPP)
    mask[50:58, RIGHT - 6 : RIGHT] = KER  # at the cut
    assert np.array_equal(trace_outline(runs_of(mask), SKIN, MPP).is_surface, plain.is_surface)
    mask[40:50, 60:70] = KER
    runs = runs_of(mask)
    flags = embedded(runs, runs.value == KER, (runs.value != KER) & (runs.value < len(SKIN)))
    found = np.repeat(flags, runs.length).reshape(mask.shape)
    assert found[40:50, 60:70].all()
    assert found[50:58, RIGHT - 6 : RIGHT].all()
    assert not found[:TOP].any()


def path(*ways):
    """Points in µm along straight ways, each a step and how often it is taken."""
    return np.cumsum(np.concatenate([np.tile(way, (count, 1)) for way, count in ways]), axis=0).astype(float)


@pytest.mark.parametrize("upside_down", [False, True])
def test_plugs_are_bridged_at_their_mouths_and_bumps_are_not(upside_down):
    flip = np.array([-1.0 if upside_down else 1.0, 1.0])
    # Along the top of a body from left to right, rows growing downward: its outline has a negative area.
    plug = flip * path(((0, 5), 40), ((5, 0), 60), ((0, 5), 40), ((-5, 0), 60), ((0, 5), 40))
    bump = flip * path(((0, 5), 40), ((-4, 4), 60), ((0, 5), 40), ((4, 4), 60), ((0, 5), 40))
    covered = np.ones(240, dtype=bool)
    ((first, last),) = bridge_plugs(plug, covered, upside_down)
    assert abs(first - 40) <= 6
    assert abs(last - 200) <= 6
    assert bridge_plugs(bump, covered, upside_down) == []
    assert bridge_plugs(plug, ~covered, upside_down) == []


def test_the_nearest_is_that_of_all(random):
    # Points of a grid, so that many distances are equal.
    places, asked = (random.integers(0, 40, (count, 2)) * 6.7 - 100.0 for count in (50, 30))
    distances, indices = nearest_of(places, asked)
    every = far_apart(asked, places, (1, 1))
    np.testing.assert_allclose(distances, every.min(axis=1))
    np.testing.assert_allclose(every[np.arange(30), indices], distances)


@pytest.mark.parametrize("scale", [(6.7, 6.7), (0.5, 0.8), (40.0, 3.0), (90.0, 120.0)])
@pytest.mark.parametrize("share", [0.02, 0.97])
def test_the_farthest_pixel_is_that_of_all(random, scale, share):
    inside = random.random((90, 140)) < share
    inside[random.integers(90), random.integers(140)] = True
    scale, places = np.array(scale), random.uniform(-20, 160, (random.integers(1, 40), 2))
    every, _ = nearest_of(places * scale, np.argwhere(inside) * scale)
    distance, pixel, place = farthest(places * scale, runs_of(inside), scale)
    assert distance == every.max()
    assert inside[tuple(pixel)]
    assert distance == pytest.approx(float(np.hypot(*((pixel - places[place]) * scale))))
