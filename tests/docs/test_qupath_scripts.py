"""The scripts for QuPath, run by Groovy with stand-ins for QuPath's functions; QuPath itself is not needed."""

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.docs.markdown import ROOT

from ntrm.annotations.pairing import case_name
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.export.geojson import write_geojson
from ntrm.regions.regions import scan_mask
from ntrm.slides.inputs import SlideInput
from ntrm.slides.slide_ids import slide_ids

HOST = Path(__file__).parent / "qupath"
OURS = {"measurements": {"Perimeter mm": 1.0}, "area": True, "pathClass": "EPI"}
BEFORE = [
    {"id": "earlier", "locked": True, **OURS},
    {"id": "unlocked", "locked": False, **OURS},
    {"id": "drawn", "locked": True, "area": True, "pathClass": "BCC", "measurements": {}},
    {"id": "unclassified", "locked": False, "area": True, "pathClass": None, "measurements": {}},
    {"id": "a line", "locked": False, "area": False, "pathClass": "BCC", "measurements": {}},
]
IMAGES = ("plain.svs", "a.ome.tif", "packed.tif", "no ending", "absent.tif")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What both scripts did with each image, all in one start of Java; and the features that were there."""
    java = shutil.which("java")
    if java is None or shutil.which("groovy") is None:
        pytest.skip("groovy is not installed")
    project = tmp_path_factory.mktemp("project")
    features = {}
    for image in IMAGES[:-1]:
        (name,) = slide_ids([SlideInput(project / image, image)]) if " " not in image else [image]
        mask = np.zeros((9, 7), dtype=np.uint8)
        mask[2:5, 1 : 3 + len(features)] = 4
        path = project / "results" / name / "regions.geojson"
        path.parent.mkdir(parents=True)
        write_geojson(path, scan_mask(mask, SKIN, Resolution.square(2.0)), SKIN, gzip=image == "packed.tif")
        stored = next(path.parent.iterdir())
        text = gzip.decompress(stored.read_bytes()) if stored.suffix == ".gz" else stored.read_bytes()
        features[image] = json.loads(text)["features"]
    cases = [
        {
            "script": str(ROOT / "docs" / "qupath" / script),
            "project": str(project),
            "image": image,
            "annotations": BEFORE,
        }
        for script in ("import_regions.groovy", "export_annotations.groovy")
        for image in IMAGES
    ]
    (project / "cases.json").write_text(json.dumps(cases))
    ended = subprocess.run(
        ["groovy", "-cp", str(HOST), str(HOST / "host.groovy"), str(project / "cases.json")],
        env={
            **os.environ,
            "JAVA_HOME": str(Path(java).resolve().parents[1]),
            # Old versions of Groovy look where newer versions of Java do not let them.
            "JAVA_OPTS": "--add-opens=java.base/java.lang=ALL-UNNAMED",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    imported, exported = (dict(zip(IMAGES, part, strict=True)) for part in (found[: len(IMAGES)], found[len(IMAGES) :]))
    return project, features, imported, exported


def test_regions_come_in_and_earlier_ones_go(ran):
    _, features, imported, _ = ran
    kept = [each["id"] for each in BEFORE if each["id"] != "earlier"]
    for image, wanted in features.items():
        assert imported[image]["objects"] == [*kept, *wanted]
        assert imported[image]["said"].endswith(f": {len(wanted)} regions")


def test_without_regions_nothing_is_touched_and_it_says_so(ran):
    _, _, imported, _ = ran
    assert imported["absent.tif"]["objects"] == [each["id"] for each in BEFORE]
    assert "absent: no regions below" in imported["absent.tif"]["said"]


def test_what_is_exported_is_found_again_by_the_import(ran):
    project, _, _, exported = ran
    for image, found in exported.items():
        (written,) = found["written"]
        assert written["ids"] == ["earlier", "unlocked", "drawn"]
        assert written["options"] == ["FEATURE_COLLECTION", "EXCLUDE_MEASUREMENTS"]
        path = Path(written["path"])
        assert path.parent == project / "annotations"
        assert path.parent.is_dir()
        assert case_name(path) == case_name(Path(image))
        assert found["objects"] == [each["id"] for each in BEFORE]
