import numpy as np
import pytest
from tests.evaluation.small import schema_of

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.export import ome_zarr
from ntrm.export.ome_zarr import write_labels_zarr, write_probabilities_zarr
from ntrm.export.pyramid import halve

zarr = pytest.importorskip("zarr")

MPP = Resolution(6.7, 6.5)
SCHEMA = schema_of()
SHAPE = (4, 210, 300)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def written(tmp_path, block_mask, monkeypatch):
    monkeypatch.setattr(ome_zarr, "CHUNK", 256)
    write_labels_zarr(tmp_path / "labels.zarr", block_mask, SKIN, MPP, metadata={"model": "m"})
    return tmp_path / "labels.zarr"


def test_every_level_is_there(written, block_mask):
    group = zarr.open_group(written / "labels" / "tissue", mode="r")
    level = np.where(block_mask == IGNORE, 0, block_mask + 1.0).astype(np.uint8)
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


def test_the_same_mask_gives_the_same_bytes_over_an_older_one(written, block_mask, tmp_path):
    before = files(written)
    write_labels_zarr(written, np.zeros_like(block_mask), SKIN, MPP)
    assert files(written) != before
    write_labels_zarr(written, block_mask, SKIN, MPP, metadata={"model": "m"})
    assert files(written) == before
    assert list(tmp_path.iterdir()) == [written]


def test_what_a_killed_run_left_is_cleared_and_a_failure_keeps_the_old(written, block_mask, tmp_path, monkeypatch):
    before = files(written)
    (tmp_path / ".labels.zarr.writing" / "labels").mkdir(parents=True)

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(ome_zarr, "_classes", fails)
    with pytest.raises(DataError, match="cannot write"):
        write_labels_zarr(written, block_mask, SKIN, MPP)
    assert files(written) == before
    assert list(tmp_path.iterdir()) == [written]


def test_a_folder_of_something_else_is_not_replaced(tmp_path, block_mask):
    (tmp_path / "labels.zarr").mkdir()
    (tmp_path / "labels.zarr" / "thesis.txt").write_text("years")
    with pytest.raises(DataError, match="already exists"):
        write_labels_zarr(tmp_path / "labels.zarr", block_mask, SKIN, MPP)
    assert (tmp_path / "labels.zarr" / "thesis.txt").read_text() == "years"


@pytest.fixture
def probabilities(random, monkeypatch):
    """Probabilities with gaps; shards are small."""
    for name, size in {"ROWS": 32, "COLUMNS": 64, "SHARD_CHUNK": 32, "SMALLEST": 100}.items():
        monkeypatch.setattr(ome_zarr, name, size)
    values = random.integers(0, 256, SHAPE, dtype=np.uint8)
    values[:, 90:165] = 0
    values[:, :, 100:200] = 0
    return values


def mean_of_four(values):
    """Pixel by pixel in whole numbers."""
    even = np.pad(values, ((0, 0), (0, values.shape[1] % 2), (0, values.shape[2] % 2)), mode="edge").astype(int)
    return (even[:, ::2, ::2] + even[:, 1::2, ::2] + even[:, ::2, 1::2] + even[:, 1::2, 1::2] + 2) // 4


def write(folder, probabilities):
    write_probabilities_zarr(folder, probabilities, SCHEMA, MPP, metadata={"model": "m"})


def test_every_level_of_probabilities_is_there(tmp_path, probabilities):
    for name in "ab":
        write(tmp_path / name, probabilities)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    group = zarr.open_group(tmp_path / "a", mode="r")
    level = probabilities
    for number in range(3):
        np.testing.assert_array_equal(group[str(number)][:], level)
        level = mean_of_four(level)
    assert sorted(group.array_keys()) == ["0", "1", "2"]
    # Shards of nothing are not there.
    assert not (tmp_path / "a" / "0" / "c" / "0" / "3").exists()


def test_the_metadata_of_probabilities_is_valid_ngff_and_names_the_classes(tmp_path, probabilities):
    models = pytest.importorskip("ome_zarr_models.v05")
    write(tmp_path / "a", probabilities)
    group = zarr.open_group(tmp_path / "a", mode="r")
    (image,) = models.Image.from_zarr(group).ome_attributes.multiscales
    assert [axis.name for axis in image.axes] == ["c", "y", "x"]
    for number, dataset in enumerate(image.datasets):
        scale, shift = dataset.coordinateTransformations
        assert scale.scale == pytest.approx([1, 6.5 * 2**number, 6.7 * 2**number])
        assert shift.translation == pytest.approx([0, 6.5 * (2**number - 1) / 2, 6.7 * (2**number - 1) / 2])
    attributes = group.attrs.asdict()
    assert [channel["label"] for channel in attributes["ome"]["omero"]["channels"]] == list(SCHEMA.names)
    assert attributes["ntrm"]["classes"] == list(SCHEMA.names)
    assert attributes["ntrm"]["model"] == "m"
    assert "255 = probability 1" in attributes["ntrm"]["pixel values"]
