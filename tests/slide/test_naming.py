import csv
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.errors import DataError, RefusedError, UsageError
from ntrm.slide.inputs import SlideInput
from ntrm.slide.naming import LONGEST, safe_name, slide_ids, without_name


@given(st.text(max_size=300))
def test_every_name_becomes_one_plain_folder(text):
    name = safe_name(text)
    assert 1 <= len(name) <= LONGEST
    assert Path(name).name == name
    assert name.isascii()
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert name[0] not in ".-"
    assert safe_name(name) == name


@pytest.mark.parametrize(
    "odd", ["..", "../../etc", "a b", "Müller", "con", "NUL.x", "a/b", "a\nb", "", "x" * 250, "皮膚"]
)
def test_odd_names_are_mended_and_stay_apart(odd):
    assert safe_name(odd) != odd
    assert safe_name(odd) != safe_name(odd + " ")


def slides(*names, ids=()):
    return [
        SlideInput(Path("in") / name, name, slide_id=given)
        for name, given in zip(names, [*ids, *[None] * len(names)], strict=False)
    ]


def test_ids_are_file_names_where_they_can_be():
    assert slide_ids(slides("a.svs", "b.svs", ids=["P1"])) == ["P1", "b"]


def test_equal_file_names_are_told_apart_by_where_they_lie():
    ids = slide_ids(slides("x/s.svs", "y/S.svs", "t.svs"))
    assert ids == slide_ids(slides("x/s.svs", "y/S.svs", "t.svs"))
    assert len({each.lower() for each in ids}) == 3
    assert ids[0].startswith("s-")
    assert ids[2] == "t"
    with pytest.raises(UsageError, match="same id"):
        slide_ids(slides("a.svs", "b.svs", ids=["P1", "p1"]))
    with pytest.raises(UsageError, match="safe name"):
        slide_ids(slides("a.svs", ids=["../up"]))


def test_pseudonyms_are_kept_in_the_key_and_say_nothing(tmp_path):
    key, some = tmp_path / "secret" / "key.csv", slides('Doe, "Jane".svs', "b.svs")
    first = slide_ids(some, key_file=key, out=tmp_path / "out")
    assert slide_ids([*some, *slides("c.svs")], key_file=key, out=tmp_path / "out")[:2] == first
    assert not any("Doe" in name or "Jane" in name for name in first)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with key.open(newline="") as stream:
        rows = {row["slide_id"]: row["slide"] for row in csv.DictReader(stream)}
    assert rows[first[0]] == str(some[0].path.resolve())
    assert len(rows) == 3
    other = slide_ids(some, key_file=tmp_path / "other.csv", out=tmp_path / "out")
    assert not set(other) & set(first)


def test_a_key_among_the_results_or_a_broken_one_is_refused(tmp_path):
    with pytest.raises(RefusedError, match="among the results"):
        slide_ids(slides("a.svs"), key_file=tmp_path / "out" / "sub" / ".." / "key.csv", out=tmp_path / "out")
    (tmp_path / "key.csv").write_text("slide_id,slide\n../x,a\n")
    with pytest.raises(DataError, match="no key"):
        slide_ids(slides("a.svs"), key_file=tmp_path / "key.csv", out=tmp_path / "out")


def test_errors_lose_the_name(tmp_path):
    slide = SlideInput(tmp_path / "Jane Doe 1950.svs", "Jane Doe 1950.svs")
    told = without_name(f"cannot read {slide.path}: bad header in Jane Doe 1950", slide, "slide-1")
    assert "Jane" not in told
    assert told == "cannot read slide-1: bad header in slide-1"
