import csv
import hashlib
import json
import os
import stat
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.broken import sound_plain

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.results.manifest import FORMAT
from ntrm.results.slide_state import Plan, SlideState, remember, remember_failure
from ntrm.slides.inputs import (
    FINGERPRINT_BYTES,
    SlideInput,
    find_inputs,
    place_of,
    places_folder,
    remember_places,
    shard_of,
    source_fingerprint,
)
from ntrm.slides.readers.formats import open_slide
from ntrm.slides.slide_folders import LeftOut
from ntrm.slides.slide_ids import LONGEST, distinguishing_paths, safe_name, slide_ids, without_name


@pytest.fixture
def folder(tmp_path):
    for name in ("b.svs", "a.TIF", "deep/c.png", "notes.txt", ".hidden/d.svs", "x/1.dcm", "x/2.dcm"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    return tmp_path / "in"


def test_a_folder_gives_its_slides_in_order_and_a_named_file_may_end_as_it_likes(folder):
    found = find_inputs([folder, folder / "notes.txt"], Resolution.square(0.5))
    assert [slide.name for slide in found] == ["a.TIF", "b.svs", "deep/c.png", "x/1.dcm", "notes.txt"]
    assert {slide.mpp for slide in found} == {Resolution.square(0.5)}


def test_linked_folders_are_looked_into_and_links_that_lead_nowhere_are_slides_that_are_lost(folder, tmp_path):
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / "e.svs").touch()
    (other / "back").symlink_to(folder)
    (folder / "lost.svs").symlink_to(tmp_path / "nowhere.svs")
    (folder / "lost.txt").symlink_to(tmp_path / "nowhere.txt")
    (folder / "round.svs").symlink_to(folder / "round.svs")
    for name, target in (("again", other), ("linked", other), ("deep2", folder / "deep"), ("up", tmp_path)):
        (folder / name).symlink_to(target, target_is_directory=True)
    (tmp_path / "beside.svs").touch()
    found = find_inputs([folder], out=tmp_path / "out")
    names = ["a.TIF", "again/sub/e.svs", "b.svs", "deep/c.png", "lost.svs", "round.svs", "x/1.dcm"]
    assert [slide.name for slide in found] == names
    assert all(slide.times == 1 for slide in found)
    for slide in found:
        if slide.path.stem in ("lost", "round"):
            with pytest.raises(DataError, match="cannot read the slide"):
                open_slide(slide.path)


@pytest.mark.parametrize("given", ["", "Images"])
def test_images_of_a_dataset_have_the_um_per_pixel_that_it_states(tmp_path, given):
    sound_plain(tmp_path, names=("Größe 1", "b", "c"))
    (tmp_path / "cases.csv").write_text("name,group,split,mpp,mpp_y\nGröße 1,p,,0.62,\nb,q,,0.25,0.5\nc,r,,,\n")
    stated = {slide.path.stem: slide.mpp for slide in find_inputs([tmp_path / given])}
    assert stated == {"Größe 1": Resolution.square(0.62), "b": Resolution(0.25, 0.5), "c": None}
    (slide, *_) = find_inputs([tmp_path / given], Resolution.square(1))
    assert slide.mpp == Resolution.square(1)


def test_a_table_brings_ids_resolutions_and_covariates(folder):
    table = folder / "list.csv"
    table.write_text("slide, slide_id ,mpp,mpp_y,age,site\nb.svs,P1,0.25,0.5,007,back\nnot there.svs,,,,8,\n")
    first, second = find_inputs([table], Resolution.square(1))
    assert first == SlideInput(folder / "b.svs", "b.svs", "P1", Resolution(0.25, 0.5), {"age": "007", "site": "back"})
    # A slide that is not there is that slide's error, not the table's.
    assert second == SlideInput(
        folder / "not there.svs", "not there.svs", None, Resolution.square(1), {"age": "8", "site": ""}
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("slide,age\n", DataError),
        ("slide\n\nb.svs\n ,\n", DataError),
        ("slide,age\n,8\n", DataError),
        ("slide,age\na\0.svs,8\n", DataError),
        ("slide,mpp\nb.svs,25400\n", RefusedError),
        ("slide,MPP\nb.svs,0.5\n", DataError),
        ("slide,mpp,mpp_y\nb.svs,,0.5\n", DataError),
        ("slide,status\nb.svs,ill\n", UsageError),
        ("slide,area_BCC_mm2\nb.svs,1\n", UsageError),
        ("slide,age\nb.svs,61\nx/../b.svs,62\n", UsageError),
    ],
)
def test_tables_that_are_refused(folder, text, error):
    (folder / "list.csv").write_text(text)
    with pytest.raises(error):
        find_inputs([folder / "list.csv"])


def test_inputs_that_are_refused(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    for wrong in ([], [tmp_path / "nothing.svs"], [tmp_path / "empty"]):
        with pytest.raises(UsageError):
            find_inputs(wrong)


def test_a_file_that_is_given_twice_is_taken_once(folder, tmp_path):
    (tmp_path / "link.svs").symlink_to(folder / "b.svs")
    (tmp_path / "linked").symlink_to(folder, target_is_directory=True)
    once = find_inputs([folder])
    for more in (folder / "b.svs", tmp_path / "link.svs", folder / "x" / ".." / "b.svs", tmp_path / "linked"):
        twice = find_inputs([folder, more])
        assert [slide.path for slide in twice] == [slide.path for slide in once]
        assert {slide.path.name for slide in twice if slide.times == 2} >= {"b.svs"}
    assert all(slide.times == 1 for slide in once)
    (folder / "list.csv").write_text("slide,age\nb.svs,61\nb.svs,61\n")
    (only,) = find_inputs([folder / "list.csv"])
    assert only.times == 2
    with pytest.raises(UsageError, match="with different values"):
        find_inputs([folder / "list.csv", folder / "b.svs"])


def test_letters_with_marks_are_found_however_they_are_spelt(tmp_path):
    composed, apart = (unicodedata.normalize(form, "été.svs") for form in ("NFC", "NFD"))
    (tmp_path / apart).touch()
    (tmp_path / "list.csv").write_text(f"slide\n{composed}\n", encoding="utf-8-sig")
    for path in (tmp_path / "list.csv", tmp_path / composed, tmp_path / apart):
        (found,) = find_inputs([path])
        assert found.path.is_file()


def test_shards_split_the_slides(random):
    slides = [SlideInput(Path(str(k)), str(k)) for k in range(int(random.integers(1, 40)))]
    parts = int(random.integers(1, 12))
    shared = [slide for part in range(parts) for slide in shard_of(slides, f"{part + 1}/{parts}")]
    assert sorted(shared, key=slides.index) == slides
    assert shard_of(slides, None) == tuple(slides)
    for wrong in ("0/3", "4/3", "1", "a/b", "-1/3", "1/0"):
        with pytest.raises(UsageError):
            shard_of(slides, wrong)


def test_results_are_no_inputs(folder):
    (folder / "out" / "b").mkdir(parents=True)
    (folder / "out" / "b" / "overlay.png").touch()
    assert "out/b/overlay.png" in [slide.name for slide in find_inputs([folder])]
    assert len(find_inputs([folder], out=folder / "out")) == 4
    with pytest.raises(RefusedError, match="folder of the results"):
        find_inputs([folder / "out" / "b" / "overlay.png"], out=folder / "x" / ".." / "out")
    with pytest.raises(UsageError, match="no slide"):
        find_inputs([folder], out=folder)


def results_in(folder, record=None):
    """A folder of results with a picture of a slide."""
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "slide.jpg").touch()
    (folder / "run.json").write_text(json.dumps({"format": FORMAT} if record is None else record))


def test_pictures_of_earlier_results_are_no_inputs(folder, tmp_path):
    slides = [slide.name for slide in find_inputs([folder])]
    results_in(folder / "first")
    results_in(folder / "deep" / "second", {"format": "ntrm-results/7"})
    results_in(tmp_path / "elsewhere")
    for name in ("linked", "linked-again"):
        (folder / name).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    left_out = LeftOut()
    assert [slide.name for slide in find_inputs([folder], out=folder / "first", left_out=left_out)] == slides
    assert sorted(left_out.results) == [str(folder / "deep" / "second"), str(folder / "linked")]
    with pytest.raises(UsageError, match="no slide among the inputs"):
        find_inputs([folder / "first"])


@pytest.mark.parametrize("record", [{"format": "other/1"}, {"format": 1}, {"name": "x"}, ["ntrm-results/1"]])
def test_a_run_of_another_program_does_not_hide_slides(folder, record):
    results_in(folder / "first", record)
    left_out = LeftOut()
    assert "first/b/slide.jpg" in [slide.name for slide in find_inputs([folder], left_out=left_out)]
    (folder / "first" / "run.json").write_bytes(b"\xff{")
    assert "first/b/slide.jpg" in [slide.name for slide in find_inputs([folder], left_out=left_out)]
    assert left_out == LeftOut()


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
def test_odd_names_are_cleaned_and_stay_different(odd):
    assert safe_name(odd) != odd
    assert safe_name(odd) != safe_name(odd + " ")


def slides(*names, ids=()):
    return [
        SlideInput(Path("in") / name, name, slide_id=given)
        for name, given in zip(names, [*ids, *[None] * len(names)], strict=False)
    ]


def files(*paths):
    """As they are when each is named by itself: nothing but the file's name."""
    return [SlideInput(Path(path), Path(path).name) for path in paths]


def test_only_the_folders_that_differ_enter_the_id(tmp_path):
    some = files("a/s.svs", "b/s.svs", "t.svs")
    ids = slide_ids(some)
    assert len(set(ids)) == 3
    assert ids[2] == "t"
    assert distinguishing_paths(some, ids) == {ids[0]: "a/s.svs", ids[1]: "b/s.svs"}
    # Neither the order nor what lies above matters: a drive may be mounted elsewhere.
    moved = files(tmp_path / "b" / "s.svs", tmp_path / "a" / "s.svs")
    assert slide_ids(moved) == [ids[1], ids[0]]
    deeper = slide_ids(files("x/1/s.svs", "y/1/s.svs"))
    assert len(set(deeper)) == 2
    assert distinguishing_paths(files("t.svs"), ["t"]) == {}
    assert ids[0].startswith("s-"), "folders' names reach no output"
    assert len({each.lower() for each in slide_ids(slides("x/s.svs", "y/S.svs"))}) == 2
    with pytest.raises(UsageError, match="same id"):
        slide_ids(slides("a.svs", "b.svs", ids=["P1", "p1"]))
    with pytest.raises(UsageError, match="safe name"):
        slide_ids(slides("a.svs", ids=["../up"]))


def test_a_slide_keeps_its_id_when_another_of_its_name_comes_later(tmp_path):
    out, some = tmp_path / "out", files(tmp_path / "p1" / "s.svs", tmp_path / "p2" / "s.svs")
    for slide in some:
        slide.path.parent.mkdir()
        slide.path.write_text(slide.path.parent.name)
    apart = slide_ids(some, out=out)
    assert "s" not in apart
    remember_failure(out / "s", "s", "no µm/px", {})
    assert slide_ids(some, out=out) == ["s", apart[1]], "a failure is nobody's, and is replaced"
    plan = Plan("s", "", None, source_fingerprint(some[1].path))
    remember(out / "s", SlideState(plan, {}, {"slides": ({"slide_id": "s"},)}))
    assert slide_ids(some, out=out) == slide_ids(some[::-1], out=out)[::-1] == [apart[0], "s"]
    assert distinguishing_paths(some, [apart[0], "s"]) == {apart[0]: "p1/s.svs", "s": "p2/s.svs"}
    some[1].path.write_text("another")
    assert slide_ids(some, out=out) == apart
    named = [some[0], replace(some[1], slide_id="s")]
    assert slide_ids(named, out=out) == [apart[0], "s"]


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


def test_pseudonyms_are_not_mixed_with_other_names(tmp_path):
    out, key, some = tmp_path / "out", tmp_path / "key.csv", slides("Jane.svs", "b.svs")
    first = slide_ids(some, key_file=key, out=out)
    for name in first:
        remember(out / name, SlideState(None, {}, {"slides": ({"slide_id": name},)}))
    assert slide_ids(some, key_file=key, out=out) == first
    remember_failure(out / "Jane", "Jane", "no µm/px", {})
    with pytest.raises(RefusedError, match="does not contain") as refused:
        slide_ids(some, key_file=key, out=out)
    assert (refused.value.got, "another --out" in refused.value.hint) == ("1 slide", True)
    with pytest.raises(RefusedError, match="does not contain"):
        slide_ids(some, key_file=tmp_path / "new.csv", out=out)
    assert not (tmp_path / "new.csv").exists()


def test_a_key_among_the_results_or_a_broken_one_is_refused(tmp_path):
    with pytest.raises(RefusedError, match="inside the results folder"):
        slide_ids(slides("a.svs"), key_file=tmp_path / "out" / "sub" / ".." / "key.csv", out=tmp_path / "out")
    (tmp_path / "key.csv").write_text("slide_id,slide\n../x,a\n")
    with pytest.raises(DataError, match="no key"):
        slide_ids(slides("a.svs"), key_file=tmp_path / "key.csv", out=tmp_path / "out")


def test_words_of_ours_stay_where_a_slide_is_called_like_one(tmp_path):
    grey, number = (SlideInput(tmp_path / "in" / name, name) for name in ("grey.png", "200.svs"))
    text = "image is not RGB; got PNG, 8-bit grey, 200 × 200 pixels"
    assert without_name(text, grey, "s1", ours=True) == without_name(text, number, "s1", ours=True) == text
    assert without_name("greyish grey-scale", grey, "s1") == "greyish s1-scale"
    assert without_name("1200 of 200", number, "s1") == "1200 of s1"
    for name in ("jane.svs", "jane"):
        slide = SlideInput(Path("in") / "doe" / name, name)
        folder = slide.path.absolute().with_suffix("")  # of the further files of some formats
        for told in (slide.path, slide.path.absolute(), name, folder / "x"):
            for ours in (True, False):
                assert without_name(f"cannot read {told}: damaged", slide, "s1", ours=ours).count("jane") == 0, told
    jane = SlideInput(Path("Jane.svs"), "Jane.svs")
    assert "Jane" not in without_name("of Jane2 and Jane", jane, "s1", ours=True)


def test_files_are_distinguished_by_size_and_either_end(tmp_path, random):
    content = bytearray(random.bytes(2 * FINGERPRINT_BYTES + 1000))
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    first = source_fingerprint(path)
    ends = bytes(content[:FINGERPRINT_BYTES]), bytes(content[-FINGERPRINT_BYTES:])
    assert first == hashlib.sha256(str(len(content)).encode() + ends[0] + ends[1]).hexdigest()
    (tmp_path / "b.svs").write_bytes(content)
    assert source_fingerprint(tmp_path / "b.svs") == first
    for place, same in ((0, False), (len(content) - 1, False), (FINGERPRINT_BYTES + 500, True)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert (source_fingerprint(path) == first) == same
    path.write_bytes(content + b"x")
    assert source_fingerprint(path) != first
    assert source_fingerprint(tmp_path / "nowhere") is source_fingerprint(tmp_path) is None


@pytest.fixture
def slide(tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_STATE", str(tmp_path / "state"))
    path = tmp_path / "Jörg \udce9.svs"
    path.write_bytes(b"a slide")
    return path


def test_a_slide_is_found_where_it_lay_as_long_as_it_lies_there(slide, monkeypatch):
    source = source_fingerprint(slide)
    assert place_of(source) is None
    monkeypatch.chdir(slide.parent)
    remember_places({source: slide.relative_to(slide.parent)})
    assert place_of(source) == slide
    slide.write_bytes(b"another")
    assert place_of(source) is None
    slide.unlink()
    assert place_of(source) is None
    os.mkfifo(slide)
    assert place_of(source) is None


def test_only_the_owner_may_read_it_and_a_damaged_memory_is_none(slide):
    source = source_fingerprint(slide)
    remember_places({source: slide})
    assert places_folder().stat().st_mode & 0o777 == 0o700
    for damage in (b"", b"a\0b", b"/"):
        (places_folder() / source).write_bytes(damage)
        assert place_of(source) is None
    remember_places({source: slide})
    assert place_of(source) == slide
