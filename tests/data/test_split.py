"""Splits in which no patient is in two, and the datasets of a split."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.helpers import write_plain, write_section

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import SPLITS, Case, Dataset
from ntrm.data.layouts import SKIN_SECTIONS, cancer_of, patient_of
from ntrm.data.split import FRACTIONS, Split, SplitRow, few_sections, make_split, open_splits, read_split, write_split

SCC_IN_TEST = ["SCC_12", "SCC_17", "SCC_18", "SCC_25", "SCC_39", "SCC_47", "SCC_55", "SCC_60", "SCC_9"]
"""Drawn with seed 0: to change these means that every published split changes."""

SKIN_NAMES = [f"{cancer}_{number}" for cancer, count in SKIN_SECTIONS.items() for number in range(1, count + 1)]


def dataset_of(rows):
    """Dataset from rows (name, group, split, cancer)."""
    cases = tuple(Case(name, None, None, group, split or None, cancer=cancer) for name, group, split, cancer in rows)
    return Dataset(Path("nowhere"), "queensland", SKIN, cases)


def skin_dataset(names=SKIN_NAMES, **splits):
    return dataset_of([(name, patient_of(name), splits.get(name), cancer_of(name)) for name in names])


def patients_of(split):
    splits = defaultdict(set)
    for row in split.rows:
        splits[row.group].add(row.split)
    return splits


@given(st.integers(0, 2**31))
def test_the_skin_dataset_splits_as_wished_in_every_cancer_type(seed):
    split = make_split(skin_dataset(), seed=seed)
    assert sorted(split.by_name) == sorted(SKIN_NAMES)
    assert all(len(splits) == 1 for splits in patients_of(split).values())
    for cancer, total in {**SKIN_SECTIONS, "": 290}.items():
        counts = Counter(row.split for row in split.rows if row.name.startswith(cancer))
        for name, fraction in zip(SPLITS, FRACTIONS, strict=True):
            assert abs(counts[name] / total - fraction) <= 0.03, f"{cancer or 'all'} in {name}"


def test_a_seed_means_the_same_everywhere_and_in_any_order(random):
    split = make_split(skin_dataset(random.permutation(SKIN_NAMES).tolist()), seed=0)
    assert [row.name for row in split.rows if row.split == "test" and row.cancer == "SCC"] == SCC_IN_TEST
    assert split == make_split(skin_dataset(), seed=0) != make_split(skin_dataset(), seed=1)


@st.composite
def assigned_rows(draw):
    """Patients of one to three sections, of mixed cancer types, some of whose sections have a split already."""
    rows = []
    for patient in range(draw(st.integers(3, 25))):
        split = draw(st.sampled_from(["", "", *SPLITS]))
        for section in range(draw(st.integers(1, 3))):
            given_split = draw(st.sampled_from(["", split]))
            cancer = draw(st.sampled_from(["BCC", "SCC", ""]))
            rows.append((f"s{patient}_{section}", f"p{patient}", given_split, cancer))
    return rows


@given(assigned_rows(), st.integers(0, 99))
def test_what_is_assigned_stays_and_takes_its_patient_along(rows, seed):
    split = make_split(dataset_of(rows), seed=seed)
    assert all(len(splits) == 1 for splits in patients_of(split).values())
    fixed = {group: given_split for _, group, given_split, _ in rows if given_split}
    for name, group, _, _ in rows:
        assert split.by_name[name] == fixed.get(group, split.by_name[name])
    assert split.kept == sum(group in fixed for _, group, _, _ in rows)
    if len({group for _, group, _, _ in rows} - fixed.keys()) >= len(set(SPLITS) - set(fixed.values())):
        assert {row.split for row in split.rows} == set(SPLITS), "a split stayed empty"


@pytest.mark.parametrize(
    "fractions", [(0.7, 0.3), (0.7, 0.2, 0.2), (1.2, -0.1, -0.1), (0, 0.5, 0.5), (float("nan"), 0, 1)]
)
def test_impossible_fractions_are_refused(fractions):
    with pytest.raises(UsageError, match="fractions"):
        make_split(skin_dataset(), fractions=fractions)


def test_an_existing_split_is_honoured_when_sections_come_and_go():
    names = SKIN_NAMES[:60]
    first = make_split(skin_dataset(names), seed=1)
    later = make_split(skin_dataset(SKIN_NAMES[10:90]), seed=2, existing=first)
    assert {name: later.by_name[name] for name in names} == first.by_name
    assert set(later.by_name) == set(SKIN_NAMES[:90])
    contrary = "test" if first.by_name[names[0]] == "train" else "train"
    with pytest.raises(RefusedError, match=f"section {names[0]} is in two splits"):
        make_split(skin_dataset(names, **{names[0]: contrary}), existing=first)
    with pytest.raises(RefusedError, match=r"(?s)patient p .*a in train and b in val"):
        Split((SplitRow("a", "p", "train"), SplitRow("b", "p", "val")))


CLASSES = "index,name,r,g,b\n0,tissue,200,0,0\n1,background,0,0,0\n"


def write_random(root, random, rows, **more):
    """A dataset of tiny random sections in the plain layout; rows of ``cases.csv`` start with the name."""
    shapes = ((256, (8, 9, 3)), (2, (8, 9)))
    sections = {
        row.split(",")[0]: [random.integers(0, most, shape, dtype=np.uint8) for most, shape in shapes] for row in rows
    }
    return write_plain(root, sections, rows, CLASSES, **more)


SPLIT = ["a,p1,train,2.0", "b,p1,train,2.0", "c,p2,val,2.0", "d,p3,test,2.0", "e,p4,test,2.0"]


@pytest.fixture
def plain(tmp_path, random):
    return write_random(tmp_path / "plain", random, SPLIT)


def names(dataset):
    return [case.name for case in dataset]


def test_a_split_is_made_anew_only_where_none_is_lost(plain, tmp_path):
    kept = write_split(plain, tmp_path / "kept.csv", fractions=(0.4, 0.3, 0.3))
    assert (kept.kept, kept.by_name) == (5, {"a": "train", "b": "train", "c": "val", "d": "test", "e": "test"})
    rows = [row.replace(row.split(",")[2], "") for row in SPLIT]
    bare = write_random(tmp_path / "bare", np.random.default_rng(0), rows)
    expected = write_split(bare, tmp_path / "expected.csv", fractions=(0.4, 0.3, 0.3), seed=3)
    anew = write_split(plain, tmp_path / "anew.csv", fractions=(0.4, 0.3, 0.3), seed=3, anew=True)
    assert anew == expected == replace(read_split(tmp_path / "anew.csv"), kept=0)
    assert (anew.kept, anew.by_name == kept.by_name) == (0, False)
    with pytest.raises(RefusedError, match="would be overwritten"):
        write_split(plain, tmp_path / "anew.csv", anew=True)
    assert read_split(tmp_path / "anew.csv").rows == anew.rows


def test_one_resolution_for_all_sections(monkeypatch):
    def opened(*resolutions):
        made = [Resolution.square(each) if isinstance(each, float) else each for each in resolutions]
        cases = tuple(Case(f"s{k}", None, None, str(k), "train", each) for k, each in enumerate(made))
        dataset = Dataset(Path("nowhere"), "plain", SKIN, cases)
        monkeypatch.setattr("ntrm.data.split.open_dataset", lambda *_args, **_options: dataset)
        return open_splits(Path("nowhere"))

    assert opened(2.0, 2.05, 1.95).resolution.mean == 2.0  # within the tolerance of a resolution
    assert opened(2.05, 1.99, 2.0, 2.05).resolution.mean == 2.0  # the lower one of the middle
    assert opened(*[6.7] * 4).resolution == Resolution.square(6.7)
    for order in permutations((1.0, 1.04, 1.03)):
        assert opened(*order).resolution.mean == 1.03
    for wrong, said in (
        ((0.96, 1.0, 1.04), "0.96 to 1.04 µm/px"),
        ((2.0, 2.0, 4.0), "2 to 4 µm/px"),
        ((2.0, None), r"1 of 2 sections without it \(s1\)"),
        ((Resolution(2.0, 4.0),), "pixels are not square"),
    ):
        with pytest.raises(RefusedError, match=said):
            opened(*wrong)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("what", ["image", "mask", "split", "name", "class", "colour", "resolution"])
def test_a_fingerprint_changes_with_what_matters(plain, what):
    before = {split: open_splits(plain).fingerprint(split) for split in (None, "train", "val", "test")}
    assert len(set(before.values())) == 4
    texts = {
        "split": ("cases.csv", "c,p2,val", "c,p2,train"),
        "name": ("cases.csv", "c,p", "x,p"),
        "class": ("classes.csv", "tissue", "gland"),
        "colour": ("classes.csv", "200,0,0", "0,200,0"),
        "resolution": ("cases.csv", ",2.0", ",2.5"),
    }
    if what in texts:
        name, old, new = texts[what]
        change(plain / name, old, new)
    for folder, mode in (("Images", "RGB"), ("Masks", "L")):
        if what == folder.lower()[:-1]:
            Image.new(mode, (9, 8), 1 if mode == "L" else 0).save(plain / folder / "c.png")
        if what == "name":
            (plain / folder / "c.png").rename(plain / folder / "x.png")
    after = open_splits(plain)
    assert after.fingerprint() != before[None]
    if what in ("image", "mask", "name"):
        assert after.fingerprint("val") != before["val"]
        assert after.fingerprint("train") == before["train"]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 20, 200, 290])
def test_few_sections_are_spread_over_the_cancer_types(count):
    few = few_sections(skin_dataset(), count)
    assert len(few) == count
    found = Counter(case.cancer for case in few)
    room = [found[cancer] for cancer in SKIN_SECTIONS if found[cancer] < SKIN_SECTIONS[cancer]]
    assert max(room, default=0) - min(room, default=0) <= 1  # equal, apart from types that ran out
    assert names(few) == [name for name in names(skin_dataset()) if name in set(names(few))]  # the order is kept


def test_a_section_that_is_missing_at_a_resolution_moves_no_other(tmp_path, random):
    pixels = random.integers(0, 12, (8, 8), dtype=np.uint8), random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    names_of = {"10x": range(40, 60), "5x": range(43, 60)}
    for level, numbers in names_of.items():
        for number in numbers:
            write_section(tmp_path, level, f"SCC_{number}", pixels[1], pixels[0])
    coarse, fine = (
        {case.name: case.split for case in open_splits(tmp_path, resolution=level).dataset} for level in names_of
    )
    assert len(fine) == 17
    assert fine.items() <= coarse.items()


def test_each_part_needs_a_patient_that_is_free_or_there():
    rows = [("a", "p", "", ""), ("b", "q", "", ""), ("c", "r", "", "")]
    assert sorted(make_split(dataset_of(rows)).by_name.values()) == sorted(SPLITS)
    with pytest.raises(RefusedError, match="too few patients"):
        make_split(dataset_of(rows[:2]))
    assert sorted(make_split(dataset_of(rows[:2]), fractions=(0.5, 0, 0.5)).by_name.values()) == ["test", "train"]
    fixed = [("a", "p", "train", ""), ("b", "p", "", ""), ("c", "q", "val", "")]
    assert make_split(dataset_of(fixed)).by_name == {"a": "train", "b": "train", "c": "val"}


def test_patients_that_read_like_formulas_come_back_as_they_were(tmp_path):
    rows = [SplitRow("a", "=1+1", "train", "@x"), SplitRow("b", "-12", "val"), SplitRow("c", "'=1+1", "test")]
    Split(tuple(rows)).write(tmp_path / "split.csv")
    assert [*read_split(tmp_path / "split.csv").rows] == rows
    lines = (tmp_path / "split.csv").read_text().splitlines()
    assert lines[1:] == ["a,'=1+1,train,'@x", "b,-12,val,", "c,''=1+1,test,"]
