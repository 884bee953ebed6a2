import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import Case, Dataset
from ntrm.data.layouts import SKIN_SECTIONS
from ntrm.data.split import DatasetSplits, few_sections, make_split, open_parts, read_split, write_split

CLASSES = "index,name,r,g,b\n0,tissue,200,0,0\n1,background,0,0,0\n"


def write_plain(root, random, rows, header="name,group,split,mpp"):
    """A dataset of tiny random sections in the plain layout; rows of ``cases.csv`` start with the name."""
    for folder in ("Images", "Masks"):
        (root / folder).mkdir(parents=True)
    for row in rows:
        name = row.split(",")[0]
        Image.fromarray(random.integers(0, 256, (8, 9, 3), dtype=np.uint8)).save(root / "Images" / f"{name}.png")
        Image.fromarray(random.integers(0, 2, (8, 9), dtype=np.uint8)).save(root / "Masks" / f"{name}.png")
    (root / "classes.csv").write_text(CLASSES)
    (root / "cases.csv").write_text("\n".join([header, *rows]) + "\n")
    return root


SPLIT = ["a,p1,train,2.0", "b,p1,train,2.0", "c,p2,val,2.0", "d,p3,test,2.0", "e,p4,test,2.0"]
UNSPLIT = [f"s{number},p{number // 2},,0.5" for number in range(12)]


@pytest.fixture
def plain(tmp_path, random):
    return write_plain(tmp_path / "plain", random, SPLIT)


@pytest.fixture
def unsplit(tmp_path, random):
    return write_plain(tmp_path / "unsplit", random, UNSPLIT)


def names(dataset):
    return [case.name for case in dataset]


# --- parts ---


def test_the_datasets_own_splits_are_kept(plain):
    parts = open_parts(plain)
    assert [names(parts[split]) for split in ("train", "val", "test")] == [["a", "b"], ["c"], ["d", "e"]]
    assert parts.resolution.mean == 2.0
    assert parts.schema.names == ("tissue", "background")


def test_sections_without_a_split_are_placed_as_the_command_would(unsplit, tmp_path):
    split = write_split(unsplit, tmp_path / "split.csv", seed=5)
    parts = open_parts(unsplit, seed=5)
    assert {case.name: case.split for case in parts.whole} == split.by_name
    patients = [{case.group for case in parts[part]} for part in ("train", "val", "test")]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 6
    assert all(patients)


def test_half_a_split_is_filled_up(tmp_path, random):
    rows = ["s0,p0,test,0.5", *UNSPLIT[2:]]
    parts = open_parts(write_plain(tmp_path / "half", random, rows))
    assert "s0" in names(parts["test"])
    assert len(parts["train"]) + len(parts["val"]) + len(parts["test"]) == 11


def test_a_split_file_decides(plain, tmp_path):
    split = read_split(
        _written(tmp_path / "split.csv", "name,group,split\na,p1,val\nb,p1,val\nc,p2,train\nd,p3,train\ne,p4,test\n")
    )
    parts = open_parts(plain, split_file=tmp_path / "split.csv")
    assert {case.name: case.split for case in parts.whole} == split.by_name


def _written(path, text):
    path.write_text(text)
    return path


def test_a_part_that_is_empty_is_named(tmp_path, random):
    parts = open_parts(write_plain(tmp_path / "few", random, SPLIT[:3]))
    with pytest.raises(UsageError, match="one of train, val"):
        parts["test"]
    with pytest.raises(UsageError, match="one of train, val"):
        parts["training"]


def test_several_resolutions_need_a_choice(tmp_path, random):
    root = tmp_path / "skin"
    for level in ("10x", "5x"):
        for name in ("BCC_3", "BCC_4", "SCC_3", "IEC_1"):
            for folder, suffix in (("Images", "tif"), ("Masks", "png")):
                (root / level / folder).mkdir(parents=True, exist_ok=True)
                pixels = SKIN.colourise(random.integers(0, 12, (6, 7), dtype=np.uint8))
                Image.fromarray(pixels).save(root / level / folder / f"{name}.{suffix}")
    with pytest.raises(UsageError, match="10x, 5x"):
        open_parts(root)
    coarse, fine = open_parts(root, level="10x"), open_parts(root, level="5x")
    assert (coarse.resolution.mean, fine.resolution.mean) == (6.7, 3.35)
    assert [case.split for case in coarse.whole] == [case.split for case in fine.whole]
    with pytest.raises(UsageError, match="no such resolution"):
        open_parts(root, level="2x")


def dataset_of(*resolutions):
    made = [None if each is None else Resolution.square(each) for each in resolutions]
    cases = tuple(Case(f"s{k}", None, None, str(k), "train", each) for k, each in enumerate(made))
    return Dataset(Path("nowhere"), "plain", SKIN, cases)


def test_one_resolution_for_all_sections(monkeypatch):
    def opened(*resolutions):
        monkeypatch.setattr("ntrm.data.split.open_dataset", lambda *_args, **_options: dataset_of(*resolutions))
        return open_parts(Path("nowhere"))

    assert opened(2.0, 2.05, 1.95).resolution.mean == 2.0  # within the tolerance of a resolution
    with pytest.raises(RefusedError, match=r"s2: 4 µm/px"):
        opened(2.0, 2.0, 4.0)
    with pytest.raises(RefusedError, match="s1: None"):
        opened(2.0, None)
    with pytest.raises(RefusedError, match="2 of 2 sections without it"):
        opened(None, None)


# --- fingerprints ---


def test_a_fingerprint_does_not_depend_on_the_place(plain, tmp_path):
    shutil.copytree(plain, tmp_path / "elsewhere" / "copy")
    moved = open_parts(tmp_path / "elsewhere" / "copy")
    assert moved.fingerprint() == open_parts(plain).fingerprint()
    assert len(moved.fingerprint()) == 16


@pytest.mark.parametrize("what", ["image", "mask", "split", "name", "class", "resolution"])
def test_a_fingerprint_changes_with_what_matters(plain, what):
    before = {split: open_parts(plain).fingerprint(split) for split in (None, "train", "val", "test")}
    assert len(set(before.values())) == 4
    changed = {
        "image": lambda: Image.new("RGB", (9, 8)).save(plain / "Images" / "c.png"),
        "mask": lambda: Image.new("L", (9, 8), 1).save(plain / "Masks" / "c.png"),
        "split": lambda: _edit(plain / "cases.csv", "c,p2,val", "c,p2,train"),
        "name": lambda: _rename(plain, "c", "x"),
        "class": lambda: _edit(plain / "classes.csv", "tissue", "gland"),
        "resolution": lambda: _edit(plain / "cases.csv", ",2.0", ",2.5"),
    }
    changed[what]()
    after = open_parts(plain)
    assert after.fingerprint() != before[None]
    if what in ("image", "mask", "name"):
        assert after.fingerprint("val") != before["val"]
        assert after.fingerprint("train") == before["train"]


def _edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _rename(root, old, new):
    for folder in ("Images", "Masks"):
        (root / folder / f"{old}.png").rename(root / folder / f"{new}.png")
    _edit(root / "cases.csv", f"{old},p", f"{new},p")


def test_a_fingerprint_does_not_depend_on_the_order_of_sections(plain, random):
    parts = open_parts(plain)
    order = random.permutation(len(parts.whole))
    shuffled = replace(parts.whole, cases=tuple(parts.whole.cases[k] for k in order))
    assert DatasetSplits(shuffled, parts.resolution).fingerprint() == parts.fingerprint()


# --- a few sections ---


def skin_sections():
    cases = tuple(
        Case(f"{cancer}_{number}", None, None, "", "train", cancer=cancer)
        for cancer, count in SKIN_SECTIONS.items()
        for number in range(1, count + 1)
    )
    return Dataset(Path("nowhere"), "queensland", SKIN, cases)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 20, 200, 290])
def test_few_sections_are_spread_over_the_cancer_types(count):
    few = few_sections(skin_sections(), count)
    assert len(few) == count
    found = Counter(case.cancer for case in few)
    room = [found[cancer] for cancer in SKIN_SECTIONS if found[cancer] < SKIN_SECTIONS[cancer]]
    assert max(room, default=0) - min(room, default=0) <= 1  # equal, apart from types that ran out
    assert names(few) == [name for name in names(skin_sections()) if name in set(names(few))]  # the order is kept


def test_fewer_sections_are_part_of_more_whatever_the_order(random):
    whole = skin_sections()
    shuffled = replace(whole, cases=tuple(whole.cases[k] for k in random.permutation(len(whole))))
    chosen = [set(names(few_sections(whole, count))) for count in range(1, 60)]
    assert all(small < large for small, large in pairwise(chosen))
    assert set(names(few_sections(shuffled, 20))) == chosen[19]


@pytest.mark.parametrize("count", [0, -1, 291])
def test_an_impossible_number_of_sections_is_refused(count):
    with pytest.raises(UsageError, match="1 to 290"):
        few_sections(skin_sections(), count)


def test_a_split_of_few_sections_stays_a_split(unsplit):
    parts = open_parts(unsplit)
    few = few_sections(parts["train"], 2)
    assert {case.split for case in few} == {"train"}
    assert make_split(parts.whole).by_name == {case.name: case.split for case in parts.whole}
