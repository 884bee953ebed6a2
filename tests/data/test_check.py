"""Every fault of a dataset is named, and nothing else."""

import os

import pytest
from tests.data.broken import broken_plain, broken_queensland, mask, save, sound_plain, sound_queensland
from tests.helpers import real_data

from ntrm.data.check import check_dataset
from ntrm.data.faults import KINDS


def found_in(report):
    """Without the note on splits: these datasets have a section or two."""
    return {(each.code, each.file) for each in report.findings if each.code != "missing-split"}


def test_every_fault_of_the_plain_layout_is_named_and_nothing_else(tmp_path):
    expected = broken_plain(tmp_path)
    report = check_dataset(tmp_path)
    assert found_in(report) == expected
    assert not report.clean
    for finding in report.faults:
        assert finding.found, finding
        assert finding.expected, finding
        assert finding.hint, finding


def test_exchanged_folders_are_said_to_be_exchanged_and_nothing_else(tmp_path):
    sound_queensland(tmp_path, data="")
    for level in ("10x", "5x"):
        images, masks = tmp_path / level / "Images", tmp_path / level / "Masks"
        images.rename(tmp_path / "photographs")
        masks.rename(images)
        (tmp_path / "photographs").rename(masks)
    assert {each.code for each in check_dataset(tmp_path).faults} == {"exchanged"}


def test_faults_between_resolutions_and_notes(tmp_path):
    expected = broken_queensland(tmp_path)
    report = check_dataset(tmp_path)
    assert found_in(report) == expected
    assert {finding.code for finding in report.faults} == {"level-mismatch"}
    assert len(report.notes) == 3


def test_all_codes_are_tried(tmp_path):
    tried = {code for code, _ in broken_plain(tmp_path / "plain") | broken_queensland(tmp_path / "queensland")}
    assert set(KINDS) - tried == {"bad-classes", "binary-masks", "empty-dataset", "missing-split", "outside-link"}


@pytest.mark.parametrize("classes", ["", "index,name\n0,a\n", "index,name,r,g,b\n1,a,0,0,0\n", "\x00", None])
def test_bad_classes(tmp_path, classes):
    sound_plain(tmp_path)
    (tmp_path / "classes.csv").unlink()
    if classes is not None:
        (tmp_path / "classes.csv").write_text(classes)
    assert found_in(check_dataset(tmp_path)) == {("bad-classes", "classes.csv")}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("name,group,mpp\na,p,0.5\nb,q,0.5\n", ["wrong columns"]),
        ("name;group;split;mpp\na;p;train;0,5\n", ["name;group;split;mpp"]),
        ("name,group,split,mpp\na,p,training,0.5\nb,q,train,0.5\n", ["unknown split"]),
        ("name,group,split,mpp\na,p,train,0.5\na,p,train,0.5\nb,,,0.5\n", ["second row", "no group"]),
        ("name,group,split,mpp\na,p,train,0.5\nb,q,train,0.5\nc,r,test,0.5\n", ["'c' without a file"]),
        ("name,group,split,mpp\na,p,train,0.5\n", ["no row for b"]),
        ("name,group,split,mpp\n", ["no row for a", "no row for b"]),
        ("name,group,split,mpp\na,p,train,0.5,9\nb,q,train,0.5\n", ["too many cells"]),
    ],
)
def test_bad_cases(tmp_path, table, words):
    sound_plain(tmp_path)
    (tmp_path / "cases.csv").write_text(table)
    report = check_dataset(tmp_path)
    assert found_in(report) == {("bad-cases", "cases.csv")}
    assert len(report.faults) == len(words)
    for word in words:
        assert any(word in finding.found for finding in report.faults), report.faults


@pytest.mark.parametrize("name", ["a\u202eb", "a\x1b[31mb", "-rf", "=1+1", "a;b", "[red]", "x.", "ü" * 110])
def test_odd_names_are_shown_harmlessly(tmp_path, name):
    save(sound_plain(tmp_path) / "Masks" / f"{name}.png", mask())
    odd = [finding for finding in check_dataset(tmp_path).faults if finding.code == "odd-name"]
    assert len(odd) == 1
    assert (odd[0].file + odd[0].found).isprintable()


def test_links_are_followed_and_noted_and_special_files_are_not_opened(tmp_path):
    root = sound_plain(tmp_path / "set")
    outside = tmp_path / "elsewhere.png"
    (root / "Images/a.png").rename(outside)
    (root / "Images/a.png").symlink_to(outside)
    (root / "Masks/c.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(root / "Images/pipe.png")
    (root / "Images/folder.png").mkdir()
    with (root / "cases.csv").open("a") as stream:
        stream.write("../../etc/passwd,p,train,0.5\n")
    report = check_dataset(root)
    assert found_in(report) == {
        ("outside-link", "Images/a.png"), ("unreadable", "Masks/c.png"), ("unreadable", "Images/pipe.png"),
        ("other-file", "Images/folder.png"), ("bad-cases", "cases.csv"), ("odd-name", "cases.csv"),
    }  # fmt: skip
    assert "outside-link" in [note.code for note in report.notes]


@pytest.mark.parametrize("name", ["glas", "gleason2019", "skin-masks"])
def test_real_data_is_clean(name):
    report = check_dataset(real_data(name))
    assert report.clean, report.faults
    assert report.sections > 50
    assert report.strays.share < 0.001
