"""Exact shrinking against literal sums, and the coarser resolutions of a dataset."""

import shutil
from collections import Counter
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import write_section

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import PARTIAL
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.data.area_mean import area_boxes
from ntrm.data.check import check_dataset
from ntrm.data.image_files import RGB8, image_size, read_header, read_image, read_mask, write_image, write_indexed_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.resample import area_average, majority_vote, parse_targets, resample_dataset, shrunk_length
from ntrm.data.split import open_splits

SIDES = st.integers(1, 14)
FACTORS = st.sampled_from(
    [*map(Fraction, (1, 2, 3, 20)), Fraction(5, 2), Fraction(10, 3), Fraction(7, 5), Fraction(1_234_567, 1_000_000)]
)
SEEDS = st.integers(0, 2**32 - 1)


def covered(length, factor):
    """For every output pixel, input pixels with the exact length of them that it covers."""
    for index in range(max(1, floor(Fraction(length) / factor + Fraction(1, 2)))):
        start, stop = index * factor, min((index + 1) * factor, Fraction(length))
        inside = ((pixel, min(stop, Fraction(pixel + 1)) - max(start, Fraction(pixel))) for pixel in range(length))
        yield [(pixel, part) for pixel, part in inside if part > 0]


def slow_average(image, factor_y, factor_x):
    return [
        [
            floor(
                sum(wy * wx * int(image[y, x]) for y, wy in rows for x, wx in columns)
                / sum(wy * wx for _, wy in rows for _, wx in columns)
                + Fraction(1, 2)
            )
            for columns in covered(image.shape[1], factor_x)
        ]
        for rows in covered(image.shape[0], factor_y)
    ]


def slow_vote(mask, rows, columns):
    votes = Counter()
    for y, wy in rows:
        for x, wx in columns:
            votes[int(mask[y, x])] += wy * wx
    return min(votes, key=lambda label: (-votes[label], label))


@given(SIDES, SIDES, FACTORS, FACTORS, SEEDS)
def test_averages_equal_exact_areas(height, width, factor_y, factor_x, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    assert area_average(image, factor_y, factor_x).tolist() == slow_average(image, factor_y, factor_x)


@given(SIDES, SIDES, FACTORS, FACTORS, SEEDS)
def test_votes_equal_exact_areas(height, width, factor_y, factor_x, seed):
    mask = np.random.default_rng(seed).choice(np.array([0, 1, 2, IGNORE], dtype=np.uint8), (height, width))
    expected = [
        [slow_vote(mask, rows, columns) for columns in covered(width, factor_x)] for rows in covered(height, factor_y)
    ]
    assert majority_vote(mask, factor_y, factor_x, classes=3).tolist() == expected


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), SEEDS)
def test_whole_factors_equal_the_mean_of_blocks(rows, columns, factor, seed):
    image = np.random.default_rng(seed).integers(0, 256, (rows * factor, columns * factor, 3), dtype=np.uint8)
    means = image.reshape(rows, factor, columns, factor, 3).mean(axis=(1, 3))
    assert np.array_equal(area_average(image, factor, factor), np.floor(means + 0.5))


@given(st.integers(1, 3000), st.integers(1, 30), st.integers(1, 30))
def test_lengths_round_half_up_and_every_output_pixel_covers_something(length, numerator, denominator):
    factor = Fraction(numerator + denominator, denominator)
    out = shrunk_length(length, factor)
    assert out == max(1, floor(length / factor + Fraction(1, 2)))
    weights = area_boxes(range(out), factor, length).weights
    assert weights.shape == (out, min(length, ceil(out * factor)))
    assert weights.sum(axis=1).min() > 0
    assert weights.data.min() > 0


def test_a_constant_stays_constant_and_a_factor_of_one_changes_nothing(seed):
    image = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    assert np.array_equal(area_average(image, 1, 1), image)
    assert np.array_equal(majority_vote(image[..., 0] % 3, 1, 1, 3), image[..., 0] % 3)
    assert set(area_average(np.full((33, 47), 201, np.uint8), Fraction(10, 3), 2.5).ravel().tolist()) == {201}


def test_blocks_of_many_pixels_do_not_overflow():
    image = np.full((4200, 4200), 255, dtype=np.uint8)
    assert area_average(image, 4200, 4200).tolist() == [[255]]


def test_ties_go_to_the_lowest_index_and_never_to_ignore():
    mask = np.array([[3, 1, 2, IGNORE, IGNORE, IGNORE]], dtype=np.uint8)
    assert majority_vote(mask, 1, 2, classes=4).tolist() == [[1, 2, IGNORE]]


def test_enlarging_and_unknown_indices_are_refused():
    with pytest.raises(RefusedError, match="shrunk"):
        area_average(np.zeros((4, 4), np.uint8), 0.5, 1)
    with pytest.raises(DataError, match="no class"):
        majority_vote(np.full((4, 4), 7, np.uint8), 2, 2, classes=3)


def blotchy(random, height, width):
    """A mask of random blocks, so that votes have winners."""
    blocks = random.integers(0, len(SKIN), (-(-height // 4), -(-width // 4)), dtype=np.uint8)
    return np.kron(blocks, np.ones((4, 4), dtype=np.uint8))[:height, :width]


def write_queensland(root: Path, seed: int, level: str = "2x", names=("BCC_1", "SCC_7"), base: str = "data") -> None:
    random = np.random.default_rng(seed)
    for index, name in enumerate(names):
        height, width = 63 + 10 * index, 88
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        write_section(root / base, level, name, image, blotchy(random, height, width))


def write_plain(root: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    mask = blotchy(random, 21, 34)
    mask[:10] = 255
    write_image(root / "Images" / "a.tif", random.integers(0, 256, (21, 34, 3), dtype=np.uint8), Resolution(0.5, 0.6))
    write_indexed_mask(root / "Masks" / "a.png", mask, SKIN)
    SKIN.write_csv(root / "classes.csv")
    (root / "cases.csv").write_text("name,group,split,mpp,mpp_y,note\na,=p,train,0.5,0.6,kept as it is\n")


def snapshot(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("jobs", [1, 2])
def test_levels_are_averages_and_votes_of_the_finest(tmp_path, seed, jobs):
    root, out = tmp_path / "in", tmp_path / "out"
    write_queensland(root, seed)
    write_queensland(root, seed + 1, level="10x")
    before = snapshot(root)
    result = resample_dataset(root, ["10x", "5x"], out, jobs=jobs)
    assert (result.sections, result.written, result.skipped) == (2, 8, 0)
    assert snapshot(root) == before
    for level, factor in (("5x", 2.5), ("10x", 5)):
        for case in open_dataset(out, resolution=level):
            source = root / "data" / "2x"
            image, mask = read_image(source / f"Images/{case.name}.tif"), source / f"Masks/{case.name}.png"
            votes = majority_vote(read_mask(mask, SKIN).mask, factor, factor, len(SKIN))
            assert np.array_equal(read_image(case.image), area_average(image, factor, factor))
            assert np.array_equal(read_mask(case.mask, SKIN).mask, votes)
            assert case.resolution == level_resolution(level)


def test_partly_annotated_sections_pass_the_check_and_keep_their_ignore(tmp_path):
    mask = np.zeros((40, 60), dtype=np.uint8)
    mask[:, 20:] = IGNORE
    for name, indices in (("BCC_1", mask), ("BCC_2", np.zeros_like(mask))):
        write_section(tmp_path / "in", "2x", name, np.zeros((40, 60, 3), dtype=np.uint8), indices)
        write_indexed_mask(tmp_path / f"in/2x/Masks/{name}.png", indices, SKIN)
    resample_dataset(tmp_path / "in", ("10x",), tmp_path / "out")
    assert check_dataset(tmp_path / "out").faults == ()
    masks = tmp_path / "out/10x/Masks"
    np.testing.assert_array_equal(read_mask(masks / "BCC_1.png", SKIN).mask, mask[::5, ::5])
    assert read_header(masks / "BCC_2.png").pixels == RGB8


def test_um_per_pixel_stand_in_the_tiff(tmp_path, seed):
    write_queensland(tmp_path / "in", seed)
    resample_dataset(tmp_path / "in", ["10x"], tmp_path / "out")
    with tifffile.TiffFile(tmp_path / "out/10x/Images/BCC_1.tif") as tif:
        tags = tif.pages[0].tags
        per_cm = tags["XResolution"].value[0] / tags["XResolution"].value[1]
        assert tags["ResolutionUnit"].value == tifffile.RESUNIT.CENTIMETER
    assert 1e4 / per_cm == pytest.approx(6.7, rel=1e-6)


def test_a_plain_dataset_keeps_its_layout_and_scales_its_mpp(tmp_path, seed):
    write_plain(tmp_path / "in", seed)
    resample_dataset(tmp_path / "in", ["4x"], tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    (case,) = dataset
    assert dataset.layout == "plain"
    assert (case.resolution, case.group, case.split) == (Resolution(2.0, 2.4), "=p", "train")
    expected = majority_vote(read_mask(tmp_path / "in/Masks/a.png", SKIN).mask, 4, 4, len(SKIN))
    assert np.array_equal(read_mask(case.mask, dataset.schema).mask, expected)
    assert expected.shape == (5, 9)
    assert "a,'=p,train,2,2.4,kept as it is" in (tmp_path / "out/cases.csv").read_text()
    assert (tmp_path / "out/classes.csv").read_bytes() == (tmp_path / "in/classes.csv").read_bytes()


@pytest.mark.parametrize("layout", [write_plain, write_queensland])
def test_any_um_per_pixel_makes_a_plain_dataset_of_square_pixels(tmp_path, seed, layout):
    layout(tmp_path / "in", seed)
    before = {case.name: case for case in open_dataset(tmp_path / "in")}
    resample_dataset(tmp_path / "in", [1.7], tmp_path / "out")
    assert resample_dataset(tmp_path / "in", [1.7], tmp_path / "out").written == 0
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.layout, {case.name for case in dataset}) == ("plain", {*before})
    for case in dataset:
        old = before[case.name]
        assert case.resolution == Resolution(1.7, 1.7)
        assert (case.group, case.split, case.cancer) == (old.group, old.split, old.cancer)
        factors = 1.7 / old.resolution.y, 1.7 / old.resolution.x
        assert np.array_equal(read_image(case.image), area_average(read_image(old.image), *factors))
        votes = majority_vote(read_mask(old.mask, SKIN).mask, *factors, len(SKIN))
        assert np.array_equal(read_mask(case.mask, dataset.schema).mask, votes)
    assert not [each for each in check_dataset(tmp_path / "out").faults if each.code != "empty-mask"]


def test_sections_of_different_um_per_pixel_are_brought_to_one(tmp_path, seed):
    write_plain(tmp_path / "in", seed)
    for folder, suffix in (("Images", ".tif"), ("Masks", ".png")):
        for name in "bc":
            shutil.copy(tmp_path / f"in/{folder}/a{suffix}", tmp_path / f"in/{folder}/{name}{suffix}")
    (tmp_path / "in/cases.csv").write_text("name,group,split,mpp\na,p,train,0.25\nb,q,val,0.5\nc,r,test,0.51\n")
    with pytest.raises(RefusedError, match=r"--to 0\.51 --out"):
        open_splits(tmp_path / "in")
    resample_dataset(tmp_path / "in", [0.5], tmp_path / "out")
    a, b, c = open_dataset(tmp_path / "out")
    assert [case.resolution.x for case in (a, b, c)] == [0.5, 0.5, 0.51]
    assert [image_size(case.image) for case in (a, b, c)] == [(11, 17), (21, 34), (21, 34)]
    assert (tmp_path / "out/cases.csv").read_text().splitlines()[1] == "a,p,train,0.5"


@pytest.mark.parametrize("text", ["1.24x", "0,62", "6.7um", "-1", "", "1e400"])
def test_what_is_neither_factors_nor_um_per_pixel_is_refused(text):
    with pytest.raises(UsageError, match="resolution"):
        parse_targets(text)


def test_an_interrupted_run_goes_on(tmp_path, seed):
    root, out = tmp_path / "in", tmp_path / "out"
    write_queensland(root, seed)
    resample_dataset(root, ["4x"], out)
    whole = snapshot(out)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.tif")}
    (out / "4x/Masks/SCC_7.png").unlink()
    (out / "4x/Masks" / f"{PARTIAL}killed.png").write_bytes(b"half")
    again = resample_dataset(root, ["4x"], out)
    assert (again.written, again.skipped) == (1, 3)
    assert snapshot(out) == whole
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.tif")} == times


def test_what_came_from_a_source_that_has_changed_is_written_anew(tmp_path, seed):
    root, out = tmp_path / "in", tmp_path / "out"
    write_queensland(root, seed, base="")
    resample_dataset(root, ["4x", "10x"], out)
    write_queensland(root, seed + 1, base="", names=("BCC_1",))
    again = resample_dataset(root, ["4x", "10x"], out)
    assert (again.written, again.skipped) == (4, 4)
    resample_dataset(root, ["4x", "10x"], tmp_path / "fresh")
    assert snapshot(out) == snapshot(tmp_path / "fresh")
    assert resample_dataset(root, ["4x", "10x"], out).written == 0


def test_tables_travel_along(tmp_path, seed):
    write_queensland(tmp_path / "in", seed, base="")
    tables = {
        "cases.csv": "name,group,split,mpp\nBCC_1,p,train,\nSCC_7,q,test,\n",
        "truth.json": "{}\n",
    }
    for name, text in tables.items():
        (tmp_path / "in" / name).write_text(text)
    # What fits the folder 2x would contradict those that are derived.
    (tmp_path / "in/cases.csv").write_text(tables["cases.csv"].replace("train,", "train,1.34"))
    resample_dataset(tmp_path / "in", ["10x"], tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_text() for name in tables} == tables
    assert [case.split for case in open_dataset(tmp_path / "out")] == ["train", "test"]


def test_a_section_is_taken_from_its_own_finest_level(tmp_path, seed):
    root = tmp_path / "in"
    write_queensland(root, seed, level="2x", names=("BCC_1",))
    write_queensland(root, seed, level="5x", names=("BCC_1", "SCC_7"))
    resample_dataset(root, ["10x"], tmp_path / "out")
    sizes = {case.name: read_image(case.image).shape[:2] for case in open_dataset(tmp_path / "out")}
    assert sizes == {"BCC_1": (13, 18), "SCC_7": (37, 44)}


@pytest.mark.parametrize(
    ("levels", "out", "kind", "message"),
    [
        (["1x"], "out", RefusedError, "finer"),
        (["150x"], "out", RefusedError, "149x at most"),
        (["5000x"], "out", UsageError, "from 1x to 999x"),
        (["10x"], "in/out", RefusedError, "inside the dataset"),
        (["10x"], "in", RefusedError, "inside the dataset"),
        ([], "out", UsageError, "number of resolutions"),
        (["10"], "out", UsageError, "level"),
        ([0.5], "out", RefusedError, "finer"),
        ([101.0], "out", RefusedError, "implausible"),
        ([6.7, 13.4], "out", UsageError, "number of resolutions"),
    ],
)
def test_what_would_be_wrong_is_refused_before_anything_is_written(tmp_path, seed, levels, out, kind, message):
    write_queensland(tmp_path / "in", seed)
    before = snapshot(tmp_path)
    with pytest.raises(kind, match=message):
        resample_dataset(tmp_path / "in", levels, tmp_path / out)
    assert snapshot(tmp_path) == before


def test_one_level_at_a_time_for_plain_and_none_for_masks_alone(tmp_path, seed):
    write_plain(tmp_path / "in", seed)
    with pytest.raises(UsageError, match="once per resolution"):
        resample_dataset(tmp_path / "in", ["2x", "5x"], tmp_path / "out")
    shutil.rmtree(tmp_path / "in/Images")
    with pytest.raises(RefusedError, match="only masks"):
        resample_dataset(tmp_path / "in", ["2x"], tmp_path / "out")


@pytest.mark.parametrize("victim", ["cases.csv", "4x/Images/BCC_1.tif", "4x/Masks/BCC_1.png"])
def test_other_files_in_the_output_are_not_overwritten(tmp_path, seed, victim):
    root, out = tmp_path / "in", tmp_path / "out"
    write_queensland(root, seed, base="")
    (root / "cases.csv").write_text("name,group,split\nBCC_1,p,\nSCC_7,q,\n")
    resample_dataset(root, ["4x"], out)
    shutil.copy(out / "4x/Masks/SCC_7.png", out / victim)
    before = (out / victim).read_bytes()
    with pytest.raises(RefusedError, match="something else"):
        resample_dataset(root, ["4x"], out)
    assert (out / victim).read_bytes() == before


def test_a_damaged_input_is_named(tmp_path, seed):
    write_queensland(tmp_path / "in", seed)
    path = tmp_path / "in/data/2x/Images/BCC_1.tif"
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"BCC_1\.tif") as caught:
        resample_dataset(tmp_path / "in", ["4x"], tmp_path / "out")
    assert isinstance(caught.value, NtrmError)
    assert not list((tmp_path / "out").rglob(f"{PARTIAL}*"))
