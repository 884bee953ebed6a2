"""What `fuzz_loaders.py` damages: sound documents of every kind that the package loads, and how they are loaded."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.loadable_files import segmenting

import ntrm
from ntrm.annotations.importing import import_annotations
from ntrm.annotations.pairing import read_names, read_slide_facts
from ntrm.annotations.qupath import read_annotations
from ntrm.core.labels import read_schema
from ntrm.data.check import check_dataset, read_measurements
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.split_file import read_split
from ntrm.evaluation.compare import compare
from ntrm.evaluation.loaded_model import open_subject
from ntrm.models.folders import CONFIG, WEIGHTS
from ntrm.models.weights import read_tensors
from ntrm.pipeline.batch import segment_slides
from ntrm.report.slide_picture import read_pictures
from ntrm.results.cohort import read_cohort
from ntrm.results.documents import read_slide
from ntrm.results.slide_state import finished, remembered
from ntrm.slides.inputs import find_inputs
from ntrm.slides.slide_ids import slide_ids
from ntrm.training.checkpoint import MAGIC, read_checkpoint
from ntrm.training.recipe import load_recipe
from ntrm.wsi.readers.formats import open_slide


@dataclass(frozen=True)
class Target:
    """One file that gets damaged, and what loads it."""

    name: str
    file: str
    kind: str
    """``json``, ``csv``, ``text`` or ``bytes``: how it may be damaged."""
    load: Callable[[Path], Any]
    seal: Callable[[Path], Any] | None = None
    """Makes checksums elsewhere fit the damage, so that what lies behind them is reached."""


def _load_dataset(root: Path) -> None:
    check_dataset(root)
    dataset = open_dataset(root)
    for case in dataset.cases:
        read_image(case.image)
        read_mask(case.mask, dataset.schema)


def _import(folder: Path, out: Path) -> None:
    report = import_annotations(
        folder / "annotations", folder / "annotations", out, mpp=6.7, margin_um=20.0, open_slide=open_slide
    )
    for failure in report.failures:
        raise failure.error


def _load_import(folder: Path) -> None:
    try:
        _import(folder, folder / "imported")
    finally:
        shutil.rmtree(folder / "imported", ignore_errors=True)


def _load_pictures(folder: Path) -> None:
    read_pictures(folder / "out" / "a", read_slide(folder / "out" / "a"))


def _on_copy(path: Path, load: Callable[[Path], Any]) -> None:
    """Loading may repair or add to what it loads."""
    copy = path.with_name(f"copy-of-{path.name}")
    (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copy)
    try:
        load(copy)
    finally:
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()


def _load_tables(out: Path) -> None:
    results = ntrm.read_results(out)
    for table in (results.slides, results.pieces, results.regions, results.interfaces):
        for name in table.columns:
            table.column(name)


def _segment_again(folder: Path) -> None:
    _on_copy(folder / "out", lambda out: segment_slides(folder / "slides.csv", out=out, **segmenting()))


def _seal_weights(folder: Path) -> None:
    model = folder / "run" / "model"
    document = json.loads((model / CONFIG).read_text())
    document["weights_sha256"] = hashlib.sha256((model / WEIGHTS).read_bytes()).hexdigest()
    (model / CONFIG).write_text(json.dumps(document))


def _load_sealed_checkpoint(folder: Path) -> None:
    """With a right checksum, or nothing in it would be looked at."""
    payload = (folder / "step-3.ckpt").read_bytes()[len(MAGIC) + 32 :]
    sealed = folder / "sealed.ckpt"
    sealed.write_bytes(MAGIC + hashlib.sha256(payload).digest() + payload)
    read_checkpoint(sealed)


def _load_key(folder: Path) -> None:
    slides = find_inputs([folder / "annotations" / "a.tif"])
    _on_copy(folder / "key.csv", lambda copy: slide_ids(slides, key_file=copy))


def _targets() -> tuple[Target, ...]:
    plain, queensland = (lambda f: _load_dataset(f / "plain")), (lambda f: _load_dataset(f / "queensland"))
    model = lambda f: open_subject(f / "run" / "model")  # noqa: E731 - one of many small loaders
    tables, slide = (lambda f: _load_tables(f / "out")), (lambda f: read_slide(f / "out" / "a"))
    cohort, pictures = (lambda f: read_cohort(f / "out")), _load_pictures
    both = lambda f: compare([f / "e1", f / "e2"], draws=100)  # noqa: E731
    return (
        Target("classes.csv", "plain/classes.csv", "csv", plain),
        Target("classes.csv alone", "plain/classes.csv", "csv", lambda f: read_schema(f / "plain" / "classes.csv")),
        Target("cases.csv", "plain/cases.csv", "csv", plain),
        Target("indexed mask", "plain/Masks/s1.png", "bytes", plain),
        Target("section image", "plain/Images/s1.tif", "bytes", plain),
        Target("queensland image", "queensland/10x/Images/BCC_1.tif", "bytes", queensland),
        Target("queensland mask", "queensland/10x/Masks/BCC_1.png", "bytes", queensland),
        Target("measurements", "plain/measurements.csv", "csv", lambda f: read_measurements(f / "plain")),
        Target("split", "split.csv", "csv", lambda f: read_split(f / "split.csv")),
        Target("annotations", "annotations/a.geojson", "json", _load_import),
        Target(
            "annotations read", "annotations/a.geojson", "json", lambda f: read_annotations(f / "annotations/a.geojson")
        ),
        Target("annotations, zipped", "b.geojson.gz", "bytes", lambda f: read_annotations(f / "b.geojson.gz")),
        Target(
            "record of an import",
            "imported-before/provenance.json",
            "json",
            lambda f: _on_copy(f / "imported-before", lambda copy: _import(f, copy)),
        ),
        Target("names of classes", "names.csv", "csv", lambda f: read_names(f / "names.csv")),
        Target("facts of slides", "facts.csv", "csv", lambda f: read_slide_facts(f / "facts.csv")),
        Target("list of slides", "inputs.csv", "csv", lambda f: slide_ids(find_inputs([f / "inputs.csv"]))),
        Target("key of pseudonyms", "key.csv", "csv", _load_key),
        Target("model config", f"run/model/{CONFIG}", "json", model),
        Target("weights", f"run/model/{WEIGHTS}", "bytes", model, _seal_weights),
        Target("pickled weights", "weights.pth", "bytes", lambda f: read_tensors(f / "weights.pth")),
        Target("provenance", "run/provenance.json", "json", model),
        Target("recipe", "recipe.yaml", "text", lambda f: load_recipe(f / "recipe.yaml")),
        Target("training checkpoint", "step-3.ckpt", "bytes", lambda f: read_checkpoint(f / "step-3.ckpt")),
        Target("training checkpoint, sealed", "step-3.ckpt", "bytes", _load_sealed_checkpoint),
        Target("run.json", "out/run.json", "json", tables),
        Target("slides.csv", "out/slides.csv", "csv", tables),
        Target("regions.csv", "out/regions.csv", "csv", tables),
        Target("summary.json", "out/a/summary.json", "json", slide),
        Target("graph.json", "out/a/graph.json", "json", slide),
        Target("done.json", "out/a/.ntrm/done.json", "json", lambda f: finished(f / "out" / "a")),
        Target("failed.json", "failed/a/.ntrm/failed.json", "json", lambda f: remembered(f / "failed" / "a")),
        Target("mask.ome.tif", "out/a/mask.ome.tif", "bytes", pictures),
        Target("slide.jpg", "out/a/slide.jpg", "bytes", pictures),
        Target("cohort: run.json", "out/run.json", "json", cohort),
        Target("cohort: slides.csv", "out/slides.csv", "csv", cohort),
        Target("cohort: interfaces.csv", "out/interfaces.csv", "csv", cohort),
        Target("metrics.json", "e1/metrics.json", "json", both),
        Target("confusions.npz", "e1/confusions.npz", "bytes", both),
        Target("results of before: done.json", "out/a/.ntrm/done.json", "json", _segment_again),
        Target("results of before: run.json", "out/run.json", "json", _segment_again),
    )


TARGETS = _targets()
