import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.core.labels import IGNORE, SKIN
from ntrm.phantom.texture.table import EMPTY, LOOK_ALIKE, PARAMETERS, TEXTURES, members, texture_table
from ntrm.phantom.tissues import CODES


def test_every_tissue_has_a_texture_of_its_own():
    assert set(TEXTURES) == set(SKIN.names)
    assert len(set(TEXTURES.values())) == len(SKIN)


@settings(max_examples=20)
@given(st.floats(0, 1))
def test_ambiguity_interpolates(ambiguity):
    table = texture_table(ambiguity)
    for parameter in PARAMETERS:
        for name in SKIN.names:
            group = next((g for g in LOOK_ALIKE if name in g), (name,))
            own = getattr(TEXTURES[name], parameter)
            common = sum(getattr(TEXTURES[other], parameter) for other in group) / len(group)
            expected = own + ambiguity * (common - own)
            assert table[parameter][SKIN.index(name)] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_full_ambiguity_is_exact():
    table = texture_table(1.0)
    for group in LOOK_ALIKE:
        rows = [SKIN.index(name) for name in group]
        assert all(len(np.unique(table[parameter][rows])) == 1 for parameter in PARAMETERS)


def test_what_is_no_tissue_reads_as_glass():
    assert texture_table(0.5)["eosin"][IGNORE] == 0
    assert EMPTY[IGNORE] == EMPTY[SKIN.index("BKG")] == 1
    assert EMPTY.sum() == IGNORE + 1 - (len(SKIN) - 1) - len(CODES)
    assert members("BCC").sum() == 1
