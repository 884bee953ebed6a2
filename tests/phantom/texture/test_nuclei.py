"""Nuclei: how they are drawn, and which there are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.texture.nuclei import Nuclei, nuclei_near, splat
from ntrm.phantom.texture.scene import Scene
from ntrm.phantom.texture.table import TEXTURES


def some_nuclei(seed, count, extent_um):
    draw = np.random.default_rng(seed)
    long = draw.uniform(2, 7, count)
    return Nuclei(
        *draw.uniform(15, extent_um - 15, (2, count)),
        long_um=long,
        short_um=long * draw.uniform(0.1, 1, count),
        angle=draw.uniform(0, np.pi, count),
        haematoxylin=draw.uniform(0.1, 1, count),
        rim=draw.uniform(0, 1, count),
    )


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0.25, 0.67, 1.34, 3.35, 6.7]))
def test_dye_is_conserved_at_every_resolution(seed, count, mpp):
    nuclei = some_nuclei(seed, count, 120)
    side = int(np.ceil(134 / mpp))
    drawn = splat(nuclei, PhantomGrid((side, side), mpp, (0.0, 0.0))).sum(dtype=float) * mpp**2
    assert drawn == pytest.approx((nuclei.haematoxylin * np.pi * nuclei.long_um * nuclei.short_um).sum(), rel=1e-4)


SIDE_PX, MPP = 150, 6.7


def inside(nuclei):
    return (np.minimum(nuclei.y_um, nuclei.x_um) >= 0) & (np.maximum(nuclei.y_um, nuclei.x_um) < SIDE_PX * MPP)


def nuclei_of(mask, seed, ambiguity=0.0):
    return nuclei_near(Scene.prepare(mask, MPP, seed, ambiguity), PhantomGrid(mask.shape, MPP, (0.0, 0.0)))


@pytest.mark.parametrize("name", ["EPI", "INF", "RET", "PAP", "SCC", "IEC", "FOL"])
def test_tissues_have_their_density_and_size(seed, name):
    nuclei = nuclei_of(np.full((SIDE_PX, SIDE_PX), SKIN.index(name), dtype=np.uint8), seed)
    row = TEXTURES[name]
    per_mm2 = inside(nuclei).sum() / (SIDE_PX * MPP / 1000) ** 2
    assert per_mm2 == pytest.approx(row.nuclei_per_mm2, rel=0.1)
    radius = np.exp(np.log(nuclei.long_um * nuclei.short_um).mean() / 2)
    assert radius == pytest.approx(row.nucleus_radius_um, rel=0.06)


def test_basal_cells_crowd_and_stand_upright_on_the_dermis(seed):
    mask = np.full((SIDE_PX, SIDE_PX), SKIN.index("BCC"), dtype=np.uint8)
    mask[SIDE_PX // 2 :] = SKIN.index("RET")
    nuclei, border_um = nuclei_of(mask, seed), SIDE_PX // 2 * MPP
    above = border_um - nuclei.y_um
    near, far = (above > 0) & (above < 7), (above > 200) & (above < 300)
    assert near.sum() / 7 > 1.1 * far.sum() / 100
    assert nuclei.haematoxylin[near].mean() > 1.2 * nuclei.haematoxylin[far].mean()
    assert np.abs(np.sin(nuclei.angle[near])).mean() > 0.9


def test_a_nucleus_is_the_same_from_every_window(seed):
    mask = np.full((SIDE_PX, SIDE_PX), SKIN.index("IEC"), dtype=np.uint8)
    scene = Scene.prepare(mask, MPP, seed, 0.5)
    whole = nuclei_near(scene, PhantomGrid(mask.shape, MPP, (0.0, 0.0)))
    part = nuclei_near(scene, PhantomGrid((40, 30), 3.35, (300.0, 200.0)))
    known = {(y, x): (a, b) for y, x, a, b in zip(whole.y_um, whole.x_um, whole.long_um, whole.angle, strict=True)}
    seen = {(y, x): (a, b) for y, x, a, b in zip(part.y_um, part.x_um, part.long_um, part.angle, strict=True)}
    assert len(seen) > 20
    assert all(known[place] == shape for place, shape in seen.items())
