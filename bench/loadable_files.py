"""Sound documents of every kind that the package loads, for `fuzz_loaders.py` to damage."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tests.evaluation.small import ByColour, draw_mask
from tests.evaluation.small import write_dataset as write_plain
from tests.pipeline.small import paint, write_slide

import ntrm
from ntrm.annotations.importing import import_annotations
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.data.layouts import MEASUREMENTS
from ntrm.evaluation.evaluate import evaluate
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.options import Options
from ntrm.results.slide_state import remember_failure
from ntrm.slides.inputs import find_inputs
from ntrm.slides.slide_ids import slide_ids
from ntrm.training.checkpoint import FIELDS, write_checkpoint
from ntrm.training.recipe import load_recipe, write_recipe
from ntrm.wsi.readers.formats import open_slide


def make_all(folder: Path, random: np.random.Generator) -> None:
    """Sound documents of every kind, in place of any that are there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _make_datasets(folder, random)
    _make_annotations(folder, random)
    _make_models(folder)
    _make_results(folder)


def _make_datasets(folder: Path, random: np.random.Generator) -> None:
    sections = {
        f"s{k}": (split, f"p{k}", draw_mask(random, 40, 50), draw_mask(random, 40, 50))
        for k, split in enumerate(("train", "val", "test"))
    }
    write_plain(folder / "plain", sections)
    (folder / "plain" / MEASUREMENTS).write_text("name,clearance_um,depth_um,reader\ns0,120,80.5,one\ns1,,40,one\n")
    for part in ("Images", "Masks"):
        (folder / "queensland" / "10x" / part).mkdir(parents=True)
    mask = random.integers(0, len(SKIN), (30, 40)).astype(np.uint8).repeat(2, axis=0)
    image = random.integers(0, 256, (60, 40, 3), dtype=np.uint8)
    write_image(folder / "queensland" / "10x" / "Images" / "BCC_1.tif", image, Resolution.square(6.7))
    Image.fromarray(SKIN.colourise(mask)).save(folder / "queensland" / "10x" / "Masks" / "BCC_1.png")
    rows = ["name,patient,split", "s0,p0,train", "s1,p1,val", "s2,p2,test"]
    (folder / "split.csv").write_text("\n".join(rows) + "\n")


def _make_annotations(folder: Path, random: np.random.Generator) -> None:
    place = folder / "annotations"
    place.mkdir()
    write_slide(place / "a.tif", paint(random, 120, 100))
    ring = [[10, 10], [60, 10], [60, 70], [10, 70], [10, 10]]
    hole = [[20, 20], [20, 40], [40, 40], [40, 20], [20, 20]]
    shapes = [("EPI", "Polygon", [ring, hole]), ("RET", "MultiPolygon", [[[[70, 5], [90, 5], [90, 90], [70, 5]]]])]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": kind, "coordinates": coordinates},
            "properties": {"objectType": "annotation", "classification": {"name": name, "color": [1, 2, 3]}},
        }
        for name, kind, coordinates in shapes
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    (place / "a.geojson").write_text(text)
    (folder / "b.geojson.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "names.csv").write_text("from,to\nEpidermis,EPI\nInk,\n")
    (folder / "facts.csv").write_text("slide,patient,split,mpp\na.tif,p1,train,6.7\nb.tif,p2,test,6.7\n")
    import_annotations(place, place, folder / "imported-before", mpp=6.7, margin_um=20.0, open_slide=open_slide)
    (folder / "inputs.csv").write_text("slide,slide_id,mpp,age\nannotations/a.tif,one,6.7,54\n")


def _make_models(folder: Path) -> None:
    network = ntrm.create("ntrm-paper", width=0.125).describe(mpp=6.7, name="small")
    network.save_pretrained(folder / "run" / "model")
    (folder / "run" / "provenance.json").write_text(json.dumps({"seed": 1, "data": {"name": "phantom"}}))
    torch.save(network.state_dict(), folder / "weights.pth")
    write_recipe(load_recipe("fast"), folder / "recipe.yaml")
    state = {**dict.fromkeys(FIELDS), "step": 3, "weights": torch.zeros(5)}
    write_checkpoint(folder / "step-3.ckpt", state)


def segmenting() -> dict[str, Any]:
    """How the results were made, and are asked for again."""
    return {"model": ByColour(), "device": "cpu", "batch": 2, "options": Options(report=False)}


def _make_results(folder: Path) -> None:
    (folder / "slides.csv").write_text(f"slide,slide_id,age\n{folder / 'annotations' / 'a.tif'},a,54\n")
    done = segment_slides(folder / "slides.csv", out=folder / "out", **segmenting())
    if done.exit_code:
        raise SystemExit("the slide to damage the results of could not be segmented")
    shutil.copytree(folder / "out", folder / "failed")
    remember_failure(folder / "failed" / "a", "a", "the disk was full", {"age": "54"})
    for name in ("e1", "e2"):
        network = ByColour().describe(name=name)
        evaluate(network, folder / "plain", folder / name, device="cpu", pictures=False, boundaries=False)
    slide_ids(find_inputs([folder / "annotations" / "a.tif"]), key_file=folder / "key.csv")
