import sys

import numpy as np
import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.export import ngff
from ntrm.export.ngff import write_labels_zarr
from ntrm.export.pyramid import halve

zarr = pytest.importorskip("zarr")

MPP = Resolution(6.7, 6.5)


@pytest.fixture
def mask(random):
    blocks = random.integers(0, 13, (33, 41)).astype(np.uint8)
    blocks[blocks == 12] = IGNORE
    return np.kron(blocks, np.ones((19, 30), np.uint8))[:-5, :-7]


@pytest.fixture
def written(tmp_path, mask, monkeypatch):
    monkeypatch.setattr(ngff, "CHUNK", 256)
    write_labels_zarr(tmp_path / "labels.zarr", iter([mask[:100], mask[100:]]), SKIN, MPP, metadata={"model": "m"})
    return tmp_path / "labels.zarr"


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_level_is_there(written, mask):
    group = zarr.open_group(written / "labels" / "tissue", mode="r")
    level = np.where(mask == IGNORE, 0, mask + 1.0).astype(np.uint8)
    for number in range(4):
        assert group[str(number)].dtype == np.uint8
        assert np.array_equal(group[str(number)][:], level)
        level = halve(level)
    assert sorted(group.array_keys()) == ["0", "1", "2", "3"]


def test_the_metadata_is_valid_ngff_and_says_what_the_values_mean(written):
    models = pytest.importorskip("ome_zarr_models.v05")
    tissue = models.ImageLabel.from_zarr(zarr.open_group(written / "labels" / "tissue", mode="r")).ome_attributes
    assert [colour.rgba for colour in tissue.image_label.colors] == [(*t.rgb, 255) for t in SKIN.tissues]
    assert models.Labels.from_zarr(zarr.open_group(written / "labels", mode="r")).ome_attributes.labels == ["tissue"]
    (root,) = models.Image.from_zarr(zarr.open_group(written, mode="r")).ome_attributes.multiscales
    assert [dataset.path for dataset in root.datasets] == [f"labels/tissue/{n}" for n in range(4)]
    attributes = zarr.open_group(written / "labels" / "tissue", mode="r").attrs.asdict()
    names = {entry["label-value"]: entry["class"] for entry in attributes["ome"]["image-label"]["properties"]}
    assert names == {t.index + 1: t.name for t in SKIN.tissues}
    assert attributes["ntrm"]["pixel values"] == "pixel = class index + 1; 0 = nothing"
    assert attributes["ntrm"]["model"] == "m"


def test_scales_are_in_micrometres_and_pixel_centres_stay_in_place(written):
    attributes = zarr.open_group(written / "labels" / "tissue", mode="r").attrs.asdict()
    (multiscale,) = attributes["ome"]["multiscales"]
    assert [(axis["name"], axis["unit"]) for axis in multiscale["axes"]] == [("y", "micrometer"), ("x", "micrometer")]
    for number, dataset in enumerate(multiscale["datasets"]):
        scale, shift = (t[t["type"]] for t in dataset["coordinateTransformations"])
        assert scale == pytest.approx([6.5 * 2**number, 6.7 * 2**number])
        # The first coarse pixel's centre is the mean of the centres of the fine pixels it covers.
        assert shift == pytest.approx([np.arange(2**number).mean() * 6.5, np.arange(2**number).mean() * 6.7])


def test_the_same_mask_gives_the_same_bytes_over_an_older_one(written, mask, tmp_path):
    before = files(written)
    write_labels_zarr(written, np.zeros_like(mask), SKIN, MPP)
    assert files(written) != before
    write_labels_zarr(written, mask, SKIN, MPP, metadata={"model": "m"})
    assert files(written) == before
    assert list(tmp_path.iterdir()) == [written]


def test_what_a_killed_run_left_is_cleared_and_a_failure_keeps_the_old(written, mask, tmp_path, monkeypatch):
    before = files(written)
    (tmp_path / ".labels.zarr.writing" / "labels").mkdir(parents=True)

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(ngff, "_write_level", fails)
    with pytest.raises(DataError, match="cannot write"):
        write_labels_zarr(written, mask, SKIN, MPP)
    assert files(written) == before
    assert list(tmp_path.iterdir()) == [written]


def test_a_folder_of_something_else_is_not_replaced(tmp_path, mask):
    (tmp_path / "labels.zarr").mkdir()
    (tmp_path / "labels.zarr" / "thesis.txt").write_text("years")
    with pytest.raises(DataError, match="in the way"):
        write_labels_zarr(tmp_path / "labels.zarr", mask, SKIN, MPP)
    assert (tmp_path / "labels.zarr" / "thesis.txt").read_text() == "years"


def test_without_zarr_the_message_says_so(tmp_path, mask, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(UsageError, match="needs zarr"):
        write_labels_zarr(tmp_path / "labels.zarr", mask, SKIN, MPP)
