import csv
import stat
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.wsi.inputs import SlideInput
from ntrm.wsi.naming import LONGEST, safe_name, slide_ids, told_apart, without_name


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


def files(*paths):
    """As they are when each is named by itself: nothing but the file's name."""
    return [SlideInput(Path(path), Path(path).name) for path in paths]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    some = files("a/s.svs", "b/s.svs", "t.svs")
    ids = slide_ids(some)
    assert len(set(ids)) == 3
    assert ids[2] == "t"
    assert told_apart(some, ids) == {ids[0]: "a/s.svs", ids[1]: "b/s.svs"}
    # Neither the order nor what lies above matters: a drive may be mounted elsewhere.
    moved = files(tmp_path / "b" / "s.svs", tmp_path / "a" / "s.svs")
    assert slide_ids(moved) == [ids[1], ids[0]]
    deeper = slide_ids(files("x/1/s.svs", "y/1/s.svs"))
    assert len(set(deeper)) == 2
    assert told_apart(files("t.svs"), ["t"]) == {}
    assert not any("a" in name.split("-")[0] for name in ids), "folders' names reach no output"


def test_both_spellings_of_a_name_have_one_id():
    composed, apart = (unicodedata.normalize(form, "Müller-é") for form in ("NFC", "NFD"))
    assert composed != apart
    assert safe_name(composed) == safe_name(apart)
    both = slide_ids(files(f"{composed}.svs", f"{apart}.svs"))
    assert len(set(both)) == 2, "unless both are there"


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
