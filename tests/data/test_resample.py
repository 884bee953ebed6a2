"""Exact shrinking against literal sums, and the coarser resolutions of a dataset."""

import shutil
from collections import Counter
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import write_section

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import PARTIAL
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.data.area_mean import area_boxes
from ntrm.data.check import check_dataset
from ntrm.data.image_files import read_image, read_mask, write_image, write_indexed_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.resample import area_average, majority_vote, resample_dataset, shrunk_length

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
def test_averages_and_votes_equal_exact_areas(height, width, factor_y, factor_x, seed):
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (height, width), dtype=np.uint8)
    assert area_average(image, factor_y, factor_x).tolist() == slow_average(image, factor_y, factor_x)
    mask = random.choice(np.array([0, 1, 2, IGNORE], dtype=np.uint8), (height, width))
    expected = [
        [slow_vote(mask, rows, columns) for columns in covered(width, factor_x)] for rows in covered(height, factor_y)
    ]
    assert majority_vote(mask, factor_y, factor_x, classes=3).tolist() == expected


@given(st.integers(1, 3000), st.integers(1, 30), st.integers(1, 30))
def test_lengths_round_half_up_and_every_output_pixel_covers_something(length, numerator, denominator):
    factor = Fraction(numerator + denominator, denominator)
    out = shrunk_length(length, factor)
    assert out == max(1, floor(length / factor + Fraction(1, 2)))
    weights = area_boxes(range(out), factor, length).weights
    assert weights.shape == (out, min(length, ceil(out * factor)))
    assert weights.sum(axis=1).min() > 0
    assert weights.data.min() > 0


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


def test_an_interrupted_run_goes_on_and_what_came_from_a_changed_source_is_written_anew(tmp_path, seed):
    root, out, levels = tmp_path / "in", tmp_path / "out", ["4x", "10x"]
    write_queensland(root, seed, base="")
    resample_dataset(root, levels, out)
    whole = snapshot(out)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.tif")}
    (out / "4x/Masks/SCC_7.png").unlink()
    (out / "4x/Masks" / f"{PARTIAL}killed.png").write_bytes(b"half")
    again = resample_dataset(root, levels, out)
    assert (again.written, again.skipped) == (1, 7)
    assert snapshot(out) == whole
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.tif")} == times
    write_queensland(root, seed + 1, base="", names=("BCC_1",))
    again = resample_dataset(root, levels, out)
    assert (again.written, again.skipped) == (4, 4)
    resample_dataset(root, levels, tmp_path / "fresh")
    assert snapshot(out) == snapshot(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("levels", "out", "kind", "message"),
    [
        (["1x"], "out", RefusedError, "finer"),
        ([0.5], "out", RefusedError, "finer"),
        ([101.0], "out", RefusedError, "implausible"),
        (["5000x"], "out", UsageError, "from 1x to 999x"),
        (["10x"], "in/out", RefusedError, "inside the dataset"),
        (["10x"], "in", RefusedError, "inside the dataset"),
        ([6.7, 13.4], "out", UsageError, "number of resolutions"),
        (["10"], "out", UsageError, "level"),
    ],
)
def test_what_would_be_wrong_is_refused_before_anything_is_written(tmp_path, seed, levels, out, kind, message):
    write_queensland(tmp_path / "in", seed)
    before = snapshot(tmp_path)
    with pytest.raises(kind, match=message):
        resample_dataset(tmp_path / "in", levels, tmp_path / out)
    assert snapshot(tmp_path) == before


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
