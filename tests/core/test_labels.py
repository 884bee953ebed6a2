from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from tests.helpers import real_data

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue, as_schema, read_schema

masks = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.integers(0, 11))


def schema_of(*names: str) -> LabelSchema:
    return LabelSchema(tuple(Tissue(i, name, name, (i * 40, 0, 0)) for i, name in enumerate(names)))


def test_the_skin_schema_is_the_specs_table():
    assert SKIN.names == ("EPI", "GLD", "INF", "RET", "FOL", "PAP", "HYP", "KER", "BKG", "BCC", "SCC", "IEC")
    assert SKIN["HYP"].rgb == (254, 246, 242)
    assert SKIN["SCC"].rgb == (127, 255, 142)
    assert SKIN.background_index == 8


def nearest_by_loop(rgb: np.ndarray, distance: float) -> int:
    gaps = [sum((int(a) - int(b)) ** 2 for a, b in zip(rgb, t.rgb, strict=True)) ** 0.5 for t in SKIN.tissues]
    best = gaps.index(min(gaps))
    white = sum((255 - int(a)) ** 2 for a in rgb) ** 0.5
    if gaps[best] == 0 or (gaps[best] <= distance and gaps[best] < white):
        return best
    return IGNORE


@given(hnp.arrays(np.uint8, (7, 5, 3)))
def test_any_colours_decode_as_the_literal_loop_says(rgb):
    decoded = SKIN.decode(rgb)
    expected = [[nearest_by_loop(pixel, 16.0) for pixel in row] for row in rgb]
    assert decoded.mask.tolist() == expected


@given(masks, st.integers(0, 2**32 - 1))
def test_small_colour_errors_are_mapped_and_counted(mask, seed):
    noise = np.random.default_rng(seed).integers(-3, 4, size=(*mask.shape, 3))
    rgb = np.clip(SKIN.colourise(mask).astype(int) + noise, 0, 255).astype(np.uint8)
    decoded = SKIN.decode(rgb)
    changed = (rgb != SKIN.colourise(mask)).any(axis=2)
    assert decoded.strays == changed.sum()
    assert np.array_equal(decoded.mask, mask)


@pytest.mark.parametrize("near_white", [(255, 255, 255), (251, 251, 251), (255, 253, 255), (249, 255, 254)])
def test_white_and_near_white_are_ignored_not_hypodermis(near_white):
    decoded = SKIN.decode(np.full((2, 2, 3), near_white, dtype=np.uint8))
    assert (decoded.mask == IGNORE).all()
    assert decoded.strays == decoded.ignored == 4
    assert decoded.worst == ((near_white, 4),)


@pytest.mark.parametrize("wrong", [-250, 12, 254, 256, 300, 1.0, True])
def test_what_is_no_class_has_no_colour(wrong):
    with pytest.raises(DataError, match="no class"):
        SKIN.colourise(np.array([[0, wrong]] if wrong is not True else [[True]]))
    assert SKIN.colourise(np.array([[255]], dtype=np.uint8), (1, 2, 3)).tolist() == [[[1, 2, 3]]]
    assert SKIN.colourise(np.zeros((0, 4), dtype=np.uint8)).shape == (0, 4, 3)


@pytest.mark.parametrize("rgb", [(0.5, 0, 0), (0, 0), (0, 0, 256), (0, 0, "9")])
def test_colours_are_three_bytes(rgb):
    with pytest.raises(DataError, match="impossible colour of a"):
        LabelSchema((Tissue(0, "a", "", rgb),))


def test_decode_refuses_what_is_not_rgb8():
    with pytest.raises(DataError, match="8-bit"):
        SKIN.decode(np.zeros((2, 2), dtype=np.uint8))
    with pytest.raises(DataError, match="8-bit"):
        SKIN.decode(np.zeros((2, 2, 3), dtype=np.uint16))


def test_remap_goes_by_name_whatever_the_order():
    other = schema_of("IEC", "BKG", "EPI")
    table = SKIN.remap_table(other)
    assert table[:3].tolist() == [SKIN.index("IEC"), SKIN.index("BKG"), SKIN.index("EPI")]
    assert (table[3:] == IGNORE).all()


def test_remap_needs_a_word_about_every_class():
    other = schema_of("Epidermis", "Ink")
    with pytest.raises(RefusedError, match="counterpart"):
        SKIN.remap_table(other)
    table = SKIN.remap_table(other, {"Epidermis": "EPI", "Ink": ""})
    assert table[:2].tolist() == [0, IGNORE]
    with pytest.raises(UsageError):
        SKIN.remap_table(other, {"Nonsense": "EPI"})


def test_classes_come_back_as_they_were_and_those_that_read_like_formulas_too(tmp_path):
    schema = LabelSchema((Tissue(0, "=1+1", "@title", (1, 2, 3)), Tissue(1, "-other", "'tis", (3, 2, 1))))
    schema.write_csv(tmp_path / "classes.csv")
    assert read_schema(tmp_path / "classes.csv").tissues == schema.tissues
    assert "0,'=1+1,1,2,3,'@title" in (tmp_path / "classes.csv").read_text()
    SKIN.write_csv(tmp_path / "classes.csv")
    again = read_schema(tmp_path / "classes.csv")
    assert (again, again.background, again.fingerprint) == (SKIN, "BKG", SKIN.fingerprint)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("index,name,r,g\n0,a,1,2\n", "wrong columns"),
        ("index,name,r,g,b\n0,a,1,2,x\n", "cannot understand"),
        ("index,name,r,g,b\n1,a,1,2,3\n", "count up from 0"),
        ("index,name,r,g,b\n0,a,1,2,3\n1,a,3,2,1\n", "share a name"),
        ("index,name,r,g,b\n0,a,1,2,3\n1,b,1,2,3\n", "share a colour"),
        ("index,name,r,g,b\n0,a,1,2,300\n", "impossible colour"),
        ("index,name,r,g,b\n0,,1,2,3\n", "unusable class name"),
        ("index,name,r,g,b\n0,a\x9b2J,1,2,3\n", "unusable class name"),
        ("index,name,r,g,b,title\n0,a,1,2,3,\u202egnp.exe\n", r"unusable class name(.|\n)*\\u202egnp"),
        ("index,name,r,g,b,title\n0,a,1,2,3,\x1b[31mred\n", "unusable class name"),
        ("index,name,r,g,b\n", "number of classes"),
        ("", "an empty file"),
        ("index;name;r;g;b\n0;a;1;2;3\n", r"wrong columns(.|\n)*not semicolons"),
    ],
)
def test_broken_class_tables_are_refused_with_the_reason(tmp_path: Path, text, words):
    path = tmp_path / "classes.csv"
    path.write_text(text)
    with pytest.raises((DataError, UsageError), match=words):
        read_schema(path)


def test_real_masks_have_few_strays_and_none_becomes_hypodermis():
    files = sorted(real_data("skin-masks").glob("*.png"))[::10]
    decoded = [SKIN.decode(np.asarray(Image.open(file))) for file in files]
    strays = sum(d.strays for d in decoded) / sum(d.mask.size for d in decoded)
    assert len(files) > 50
    assert 0 < strays < 1e-3


def test_class_names_alone_make_a_schema():
    schema = as_schema(["stroma", "tumour", "Background"])
    assert (schema.names, schema.background_index) == (("stroma", "tumour", "Background"), 2)
    assert as_schema(schema) is schema
    assert len(as_schema([f"T{k}" for k in range(255)])) == 255


@pytest.mark.parametrize("classes", ["stroma", 3, None, ["stroma", 3], {"stroma": 1}, ["a"] * 2, ["a"] * 300, []])
def test_what_names_no_classes_is_refused(classes):
    with pytest.raises(NtrmError):
        as_schema(classes)
