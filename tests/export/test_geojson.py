import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import shapely
from PIL import Image
from scipy import ndimage

from ntrm.annotations.importing import import_annotations
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import read_mask
from ntrm.export.geojson import write_geojson
from ntrm.regions.regions import scan_mask
from ntrm.slides.readers.formats import open_slide

MPP = Resolution(2.0, 2.5)
EVERY = replace(SKIN, background=None)  # The glass is a region, too


def write(path, mask, resolution=MPP, confidence=None, **options):
    return write_geojson(path, scan_mask(mask, EVERY, resolution, confidence=confidence, full=255.0), SKIN, **options)


@pytest.fixture
def mask(random):
    """Smooth regions of six classes with islands and holes, nothing at one side."""
    field = ndimage.gaussian_filter(random.standard_normal((6, 60, 80)), (0, 2, 2))
    labels = field.argmax(axis=0).astype(np.uint8) + 4
    labels[:, :9] = IGNORE
    return labels


def features(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def polygon(feature):
    rings = feature["geometry"]["coordinates"]
    return shapely.Polygon(rings[0], rings[1:])


def test_features_are_as_qupath_reads_them(tmp_path, mask):
    confidence = np.full(mask.shape, 204, np.uint8)
    written = write(
        tmp_path / "r.geojson", mask, confidence=confidence, metadata={"model": "m"}, document={"slide": "s"}
    )
    document = features(written)
    assert document["type"] == "FeatureCollection"
    assert document["ntrm"]["slide"] == "s"
    assert document["ntrm"]["offset"] == [0, 0]
    assert len(document["features"]) > 6
    for number, feature in enumerate(document["features"], start=1):
        properties, area = feature["properties"], polygon(feature)
        tissue = SKIN[properties["classification"]["name"]]
        assert area.is_valid
        assert properties["objectType"] == "annotation"
        assert properties["classification"]["color"] == list(tissue.rgb)
        assert properties["name"] == f"{tissue.name} {number}"
        assert (properties["measurements"]["Region"], properties["measurements"]["Piece"]) == (number, 0)
        assert properties["metadata"] == {"model": "m"}
        measured = properties["measurements"]
        assert measured["Area mm^2"] == pytest.approx(area.area * 2.0 * 2.5 / 1e6, rel=1e-5)
        stretched = shapely.transform(area, lambda points: points * (2.0, 2.5))
        assert measured["Perimeter mm"] == pytest.approx(stretched.length / 1e3, rel=1e-5)
        assert measured["Mean confidence"] == pytest.approx(0.8)
        assert all(ring[0] == ring[-1] for ring in feature["geometry"]["coordinates"])
    assert len({feature["id"] for feature in document["features"]}) == len(document["features"])
    pixels = {tissue.name: 0.0 for tissue in SKIN.tissues}
    for feature in document["features"]:
        pixels[feature["properties"]["classification"]["name"]] += polygon(feature).area
    assert [*pixels.values()] == np.bincount(mask.ravel(), minlength=256)[: len(SKIN)].tolist()


@pytest.mark.parametrize("packed", [False, True])
def test_the_same_mask_gives_the_same_bytes(tmp_path, mask, packed):
    first = write(tmp_path / "a" / "r.geojson", mask, gzip=packed, identity="s")
    again = write(tmp_path / "b" / "r.geojson", mask, gzip=packed, identity="s")
    other = write(tmp_path / "c" / "r.geojson", mask, gzip=packed, identity="t")
    assert first.name == ("r.geojson.gz" if packed else "r.geojson")
    assert first.read_bytes() == again.read_bytes()
    assert {f["id"] for f in features(first)["features"]}.isdisjoint(f["id"] for f in features(other)["features"])


@pytest.mark.parametrize(("packed", "factor"), [(False, 4), (True, 3.7)])
def test_export_then_import_gives_the_same_pixels(tmp_path, mask, packed, factor):
    """A slide ``factor`` times finer than the mask, imported at the mask's µm/px."""
    height, width = (int(np.ceil(side * factor)) for side in mask.shape)
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(tmp_path / "s.png")
    written = write(
        tmp_path / "s.geojson", mask, Resolution.square(factor), to_level0=(factor, factor, 0, 0), gzip=packed
    )
    report = import_annotations(
        tmp_path / "s.png", written, tmp_path / "out", mpp=1.0, target_mpp=factor, margin_um=0, open_slide=open_slide
    )
    (case,) = report.imported
    assert case.counts["used"] == len(features(written)["features"])
    assert case.counts["repaired"] == 0
    back = read_mask(tmp_path / "out" / "Masks" / "s.png", SKIN).mask
    # The import keeps the annotated box: it begins at the first tissue, in whole pixels of the slide.
    left, top = case.left / factor, case.top / factor
    rows = np.floor(np.arange(case.height) + top + 0.5).astype(int)
    columns = np.floor(np.arange(case.width) + left + 0.5).astype(int)
    assert np.array_equal(back, mask[np.ix_(rows, columns)])


def test_bounds_are_taken_off_and_recorded(tmp_path):
    mask = np.array([[IGNORE, 0], [IGNORE, IGNORE]], np.uint8)
    written = write(tmp_path / "r.geojson", mask, to_level0=(4, 5, 1000, 2000), bounds=(900, 1900, 50, 50))
    document = features(written)
    assert polygon(document["features"][0]).bounds == (104, 100, 108, 105)
    assert document["ntrm"]["offset"] == [900, 1900]
    assert document["ntrm"]["to_level0"] == [4, 5, 1000, 2000]


def test_simplified_polygons_are_valid_close_to_the_exact_ones_and_none_is_lost(tmp_path, mask):
    exact = features(write(tmp_path / "e.geojson", mask))["features"]
    written = write(tmp_path / "s.geojson", mask, simplify_um=3.0)
    document = features(written)
    simple = {f["id"]: polygon(f) for f in document["features"]}
    assert list(simple) == [f["id"] for f in exact]
    assert "exact outline" in document["ntrm"]["simplification"]
    assert sum(map(shapely.get_num_coordinates, simple.values())) < sum(
        shapely.get_num_coordinates(polygon(f)) for f in exact
    )
    for feature in exact:
        assert simple[feature["id"]].is_valid
        assert simple[feature["id"]].area > 0
        # A point of the outline moves by at most 3 µm, which is 1.5 pixels across.
        assert simple[feature["id"]].hausdorff_distance(polygon(feature)) <= 1.5 + 1e-6


@pytest.mark.parametrize("factor", [1, 13.4277])
def test_simplified_regions_keep_their_area_and_qupath_loses_none_to_its_precision(tmp_path, random, factor):
    """QuPath rounds coordinates to 0.01 pixels, and reduces what collapses then."""
    field = ndimage.gaussian_filter(random.standard_normal((6, 60, 80)), (0, 1, 1))
    mask = field.argmax(axis=0).astype(np.uint8) + 1
    mask[:3, :3] = IGNORE
    mask[1, 1] = SKIN.index("EPI")
    resolution = Resolution.square(6.7)
    written = write(tmp_path / "r.geojson", mask, resolution, simplify_um=10, to_level0=(factor, factor, 0, 0))
    for feature in features(written)["features"]:
        shown, pixels = polygon(feature), feature["properties"]["measurements"]["Area mm^2"] / (6.7e-3**2)
        assert shown.area / factor**2 == pytest.approx(pixels, rel=0.101)
        assert shown.equals_exact(shapely.set_precision(shown, 0.01), 1e-6, normalize=True)
    (alone,) = (polygon(f) for f in features(written)["features"] if f["properties"]["name"].startswith("EPI"))
    assert alone.equals(shapely.box(*np.round(np.array([1, 1, 2, 2]) * factor, 2)))


def test_annotations_of_a_corrected_mask_say_what_a_person_named(tmp_path, mask):
    regions = scan_mask(mask, EVERY, MPP, confidence=np.full(mask.shape, 0.5), full=1.0)
    count = len(regions.table)
    person = np.stack([np.linspace(0, 1, count), np.zeros(count)], axis=1)
    confidence = np.where(person[:, 0] == 1, np.nan, 0.5)
    table = replace(regions.table, person=person, confidence=confidence)
    written = write_geojson(tmp_path / "r.geojson", replace(regions, table=table), SKIN)
    told = [each["properties"]["measurements"] for each in features(written)["features"]]
    assert [each["By hand"] for each in told] == pytest.approx(person[:, 0].tolist(), rel=1e-5)
    assert {each["Followed"] for each in told} == {0.0}
    assert [each.get("Mean confidence") for each in told] == [*[0.5] * (count - 1), None]
