"""Corrected slides as a dataset: which pixels count, whose slides they are, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.correct.corrected import correct, segmented, step
from tests.evaluation.small import COLOURS, NAMES
from tests.segment.small import write_slide

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.labels import IGNORE
from ntrm.correct import dataset as corrected_dataset
from ntrm.correct import mask
from ntrm.correct.dataset import CorrectedResults
from ntrm.correct.log import Step
from ntrm.data.check import check_dataset
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.layouts import open_dataset
from ntrm.results.slide_state import finished

pytestmark = pytest.mark.usefixtures("quick_readers")
SHAPE = (190, 130)
EPI, RET, SCC = (NAMES.index(name) for name in ("EPI", "RET", "SCC"))


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Slides a and b as the network has segmented them."""
    return segmented(tmp_path_factory.mktemp("before"))


@pytest.fixture
def slides(before, tmp_path):
    """The same, of which a is corrected: a box is called SCC, and another one follows; b is as it was."""
    for part in ("slides", "out"):
        shutil.copytree(before.slides.parent / part, tmp_path / part)
    correct(tmp_path / "out", "a", step(SHAPE, "SCC", (80, 90, 40, 60), EPI=(100, 104, 40, 50)))
    return before._replace(slides=tmp_path / "slides", results=tmp_path / "out")


def written(slides, out, trust="hand", **options):
    return CorrectedResults(slides.results, slides.slides, trust).write(out, **options)


def corrected(results):
    return results.corrected


def mask_of(out, name="a"):
    dataset = open_dataset(out)
    return read_mask(out / "Masks" / f"{name}.png", dataset.schema).mask


def expected(painted, trust):
    """The slide's mask by what counts, pixel by pixel."""
    truth = np.full(SHAPE, IGNORE, dtype=np.uint8) if trust != "all" else painted.copy()
    if trust != "hand":
        truth[100:104, 40:50] = EPI
    truth[80:90, 40:60] = SCC
    return truth


@pytest.mark.parametrize("trust", ["hand", "followed", "all"])
def test_only_what_is_trusted_counts(slides, tmp_path, trust):
    (slides.slides / "a.tif").rename(slides.slides / "renamed.tif")
    record = written(slides, tmp_path / "data", trust=trust)
    assert check_dataset(tmp_path / "data").faults == ()
    (case,) = open_dataset(tmp_path / "data").cases
    assert (case.name, case.group, case.split) == ("a", "a", "train")
    assert str(tmp_path) not in json.dumps(record)
    truth = expected(slides.painted["a"], trust)
    np.testing.assert_array_equal(mask_of(tmp_path / "data"), truth)
    image = read_image(tmp_path / "data" / "Images" / "a.tif")
    np.testing.assert_array_equal(image, np.array(COLOURS, dtype=np.uint8)[slides.painted["a"]])
    assert record["slides"][0]["pixels"] == {
        name: int((truth == index).sum()) for index, name in enumerate(NAMES) if (truth == index).any()
    }


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Slides a and b of one patient and two study arms, in two splits, both corrected."""
    rows = ["slide,patient,group,split", "slides/a.tif,P01,lesion,train", "slides/b.tif,P01,normal,val"]
    slides = segmented(tmp_path_factory.mktemp("labelled"), rows=rows)
    for name in "ab":
        correct(slides.results, name, step(SHAPE, "SCC", (80, 90, 40, 60)))
    return slides


def test_the_column_group_does_not_hide_that_a_patient_is_in_two_splits(labelled):
    with pytest.raises(RefusedError, match="patient P01 is in two splits"):
        corrected(CorrectedResults(labelled.results))


def labelled_as(monkeypatch, covariates):
    """Slides whose table of slides has these columns."""

    monkeypatch.setattr(mask, "finished", lambda folder: replace(finished(folder), covariates=covariates))


@pytest.mark.parametrize(
    ("covariates", "groups"),
    [
        ({"group": "G"}, ["G", "G"]),
        ({"patient": "", "group": "G"}, ["a", "b"]),
        ({"patient": "P", "patient_id": "7", "Group": "G"}, ["P", "P"]),
        ({"stage": "T1"}, ["a", "b"]),
    ],
)
def test_group_is_the_patient_only_where_no_patient_is_told(labelled, monkeypatch, covariates, groups):
    labelled_as(monkeypatch, covariates)
    assert [slide.group for slide in CorrectedResults(labelled.results).corrected] == groups


@pytest.mark.parametrize(
    ("covariates", "meant"),
    [
        ({"patient_id": "P1"}, "patient"),
        ({"Patient": "P1", "group": "lesion"}, "patient"),
        ({"Group": "P1"}, "patient"),
        ({"patient": "P1", "Split": "val"}, "split"),
    ],
)
def test_columns_that_are_almost_patient_or_split_are_not_passed_over(labelled, monkeypatch, covariates, meant):
    labelled_as(monkeypatch, covariates)
    with pytest.raises(DataError, match=f"a: a column .* has a name that resembles {meant}") as refused:
        corrected(CorrectedResults(labelled.results))
    assert refused.value.got in covariates


def test_an_area_is_cut_out_with_its_surroundings_and_no_pixel_counts_twice(slides, tmp_path, monkeypatch):
    monkeypatch.setattr(corrected_dataset, "BLOCK", 84)
    monkeypatch.setattr(corrected_dataset, "MARGIN", 5)
    written(slides, tmp_path / "data")
    dataset, truth = open_dataset(tmp_path / "data"), expected(slides.painted["a"], "hand")
    counted = np.zeros(SHAPE, dtype=int)
    for case in dataset.cases:
        top, left = (int(number) for number in case.name.split("_")[1:])
        mask = read_mask(case.mask, dataset.schema).mask
        here = np.s_[top : top + mask.shape[0], left : left + mask.shape[1]]
        colours = np.array(COLOURS, dtype=np.uint8)[slides.painted["a"][here]]
        np.testing.assert_array_equal(read_image(case.image), colours)
        np.testing.assert_array_equal(mask[mask != IGNORE], truth[here][mask != IGNORE])
        counted[here] += mask != IGNORE
    np.testing.assert_array_equal(counted, truth != IGNORE)
    assert [case.name for case in dataset.cases] == ["a_75_35", "a_79_35"]


def test_the_same_corrections_are_kept_and_others_are_refused(slides, tmp_path):
    first = written(slides, tmp_path / "data")
    image = tmp_path / "data" / "Images" / "a.tif"
    stamp = image.stat().st_mtime_ns
    assert written(slides, tmp_path / "data") == first
    assert image.stat().st_mtime_ns == stamp
    with pytest.raises(RefusedError, match="other corrections"):
        written(slides, tmp_path / "data", trust="all")
    (tmp_path / "data" / "corrections.json").unlink()  # as if it had been interrupted
    image.with_name("old.tif").write_bytes(b"half")
    assert written(slides, tmp_path / "data") == first
    assert [path.name for path in image.parent.iterdir()] == ["a.tif"]
    correct(slides.results, "a", step(SHAPE, "EPI", (0, 2, 0, 2)))
    with pytest.raises(RefusedError, match="other corrections") as refused:
        written(slides, tmp_path / "data")
    assert (refused.value.got, refused.value.expected) == ("trust hand; versions a 2", "trust hand; versions a 1")


def test_what_was_undone_does_not_count(slides):
    correct(slides.results, "a", Step(action="undo"))
    with pytest.raises(DataError, match="no slide is corrected"):
        corrected(CorrectedResults(slides.results))


def test_slides_that_are_missing_or_not_named_are_an_error(slides, tmp_path):
    with pytest.raises(UsageError, match="slides themselves are needed"):
        CorrectedResults(slides.results).write(tmp_path / "data")
    with pytest.raises(UsageError, match="no such folder of slides"):
        CorrectedResults(slides.results, tmp_path / "nix").write(tmp_path / "data")
    (slides.slides / "a.tif").unlink()
    write_slide(slides.slides / "a.tif", slides.painted["b"][:, ::-1])
    with pytest.raises(DataError, match="not below") as missing:
        written(slides, tmp_path / "data")
    assert missing.value.got == "no file with the content of a"
