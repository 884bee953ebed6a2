"""Stained sections: every tissue in its colours, the same at every resolution, and what a scanner adds."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from tests.helpers import real_data
from tests.phantom.masks import blobs
from tests.phantom.small import drawn, small

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.pixels import block_means
from ntrm.phantom import render as render_module
from ntrm.phantom.render import Artefacts, expose, render
from ntrm.phantom.stain import Stain
from ntrm.phantom.tissues import CODES
from ntrm.phantom.versions import VERSIONS

CLEAN = {"artefacts": Artefacts(), "stain": Stain()}


def test_glass_and_ignore_are_empty_light(seed):
    mask = np.full((40, 30), SKIN.index("BKG"), dtype=np.uint8)
    mask[:, 15:] = IGNORE
    picture = render(mask, 6.7, seed, **CLEAN)
    assert np.array_equal(np.unique(picture.reshape(-1, 3), axis=0), [[253, 252, 253]])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("one", "other"), [("IEC", "EPI"), ("SCC", "EPI"), ("SCC", "IEC"), ("BCC", "FOL"), ("PAP", "RET")]
)
def test_ambiguity_hides_the_pair_and_nothing_else(seed, one, other, version):
    names = [one, other, "BKG", "INF", "HYP", "KER", "RET" if one == "BCC" else "BCC"]
    mask = blobs(seed, (80, 80), 6.7, names, wavelength_um=150.0)
    swapped = mask.copy()
    swapped[mask == SKIN.index(one)], swapped[mask == SKIN.index(other)] = SKIN.index(other), SKIN.index(one)
    hidden = (render(each, 6.7, seed, ambiguity=1, version=version) for each in (mask, swapped))
    assert np.array_equal(*hidden)
    if version == "2":
        return
    pair, apart = np.isin(mask, [SKIN.index(one), SKIN.index(other)]), []
    for ambiguity in (0.0, 0.5, 0.9):
        first, second = (render(each, 6.7, seed, ambiguity=ambiguity, **CLEAN)[pair] for each in (mask, swapped))
        apart.append(np.abs(first - second.astype(float)).mean())
    assert apart[0] > 4
    assert apart[0] > apart[1] > apart[2] > 0


@pytest.mark.parametrize(
    ("version", "names"),
    [("1", ("RET", "PAP", "INF", "BCC", "HYP")), ("1", ("KER", "SCC", "EPI", "GLD", "FOL", "IEC", "BKG")),
     ("2", ("RET", "PAP", "INF", "KER", "EPI", "BCC", "BKG"))],
)  # fmt: skip
def test_resolutions_are_views_of_one_section(seed, version, names):
    coarse, fine = blobs(seed, (96, 96), 6.7, names), blobs(seed, (480, 480), 1.34, names)
    if version == "2":
        for name, label in (("elastosis", "PAP"), ("scar", "RET"), ("basket weave", "KER")):
            for mask in (coarse, fine):
                mask[mask == SKIN.index(label)] = CODES[name, label]
    options = {**CLEAN, "version": version}
    averaged = block_means(render(fine, 1.34, seed, **options).astype(np.float32), (5, 5))
    direct = render(coarse, 6.7, seed, **options)
    tissue = coarse != SKIN.index("BKG")
    # Green carries most of both stains.
    assert np.corrcoef(averaged[tissue][:, 1], direct[tissue][:, 1])[0, 1] > 0.9
    assert np.abs(averaged[tissue].mean(axis=0) - direct[tissue].mean(axis=0)).max() < 5


def test_blocks_leave_no_seam(seed, monkeypatch):
    mask = blobs(seed, (120, 90), 6.7, SKIN.names)
    whole = render(mask, 6.7, seed, **CLEAN).astype(int)
    monkeypatch.setattr(render_module, "_BLOCK_PX", 37)
    assert np.abs(render(mask, 6.7, seed, **CLEAN) - whole).max() <= 1


@pytest.mark.slow
def test_another_process_draws_the_same_section_and_picture(seed):
    """Also with another number of threads."""
    seed = small(seed)
    code = f"from tests.phantom.small import drawn; print(drawn({seed}))"
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=os.environ | single, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == drawn(seed)


def test_tissues_have_their_colours(seed):
    colours = {}
    for index, name in enumerate(SKIN.names):
        mask = np.full((48, 48), index, dtype=np.uint8)
        colours[name] = render(mask, 6.7, seed, ambiguity=0, **CLEAN).reshape(-1, 3).mean(axis=0)
    green = {name: colour[1] for name, colour in colours.items()}
    assert green["BKG"] > green["HYP"] > green["PAP"] > max(green[name] for name in ("SCC", "BCC", "EPI", "IEC", "KER"))
    assert colours["BCC"][0] < colours["SCC"][0] - 10, "basaloid nests are bluer than squamous ones"
    assert colours["KER"][0] == max(colours[name][0] for name in ("KER", "EPI", "IEC", "SCC", "BCC", "FOL"))


@settings(max_examples=15)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**63),
    st.sampled_from([0.5, 3.35, 6.7, 20.0, 100.0]),
    st.floats(0, 1),
)
def test_any_mask_can_be_rendered(height, width, seed, mpp, ambiguity):
    values = np.array([*range(len(SKIN)), IGNORE], dtype=np.uint8)
    mask = np.random.default_rng(seed).choice(values, size=(height, width))
    assert render(mask, mpp, seed, ambiguity=ambiguity).shape == (height, width, 3)


@pytest.mark.parametrize(
    ("mask", "mpp", "ambiguity", "error"),
    [
        (np.zeros((4, 4), np.int64), 6.7, 0.5, DataError),
        (np.zeros((0, 4), np.uint8), 6.7, 0.5, DataError),
        (np.full((4, 4), 12, np.uint8), 6.7, 0.5, DataError),
        (np.zeros((4, 4), np.uint8), 0.0, 0.5, RefusedError),
        (np.zeros((4, 4), np.uint8), 670.0, 0.5, RefusedError),
        (np.zeros((4, 4), np.uint8), 6.7, 1.01, UsageError),
    ],
)
def test_bad_input_is_refused(mask, mpp, ambiguity, error):
    with pytest.raises(error, match="expected"):
        render(mask, mpp, 1, ambiguity=ambiguity)


def test_real_masks_can_be_rendered(seed, random):
    files = sorted(real_data("skin-masks").glob("*.png"))
    compared = 0
    for path in random.choice(np.array(files), 4, replace=False):
        mask = SKIN.decode(np.asarray(Image.open(path).convert("RGB"))).mask
        picture = render(mask, 6.7, seed, **CLEAN)
        empty = np.isin(mask, [SKIN.index("BKG"), IGNORE])
        solid = ~empty & (mask != SKIN.index("HYP"))
        if empty.sum() > 100 and solid.sum() > 100:
            compared += 1
            assert picture[solid].mean() < picture[empty].mean() - 5, path.name
    assert compared


SEEDS = st.integers(0, 2**63)


@given(hnp.arrays(np.float32, (5, 4, 3), elements=st.floats(0, 255, width=32)), SEEDS)
def test_without_artefacts_only_rounding_is_left(picture, seed):
    assert np.abs(expose(picture, 6.7, seed, Artefacts()) - picture).max() <= 0.5


def test_pictures_larger_than_a_jpeg_tile_come_back_whole():
    picture = np.full((30, 5000, 3), (200, 120, 180), dtype=np.float32)
    out = expose(picture, 6.7, 1, Artefacts(jpeg_quality=90))
    assert np.abs(out - picture).max() <= 3
