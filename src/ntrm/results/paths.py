"""Names of the files in a results folder: the one place where they stand."""

from __future__ import annotations

# Of the folder: ``OUT/…``

RUN = "run.json"  # What the folder was made with: model, program, options
INDEX, RUN_LOCK = "index.html", ".lock"
CLASSES = "classes.csv"  # The tissues as people name them, where there is no model
TABLES = ("slides", "pieces", "regions", "interfaces")

# Of a slide: ``OUT/<slide id>/…``

MASK, REGIONS, GRAPH, SUMMARY = "mask.ome.tif", "regions.geojson", "graph.json", "summary.json"
COARSE_MASK, CONFIDENCE_MAP, TRUTH_MASK = "coarse.ome.tif", "confidence.ome.tif", "truth.ome.tif"
LABELS_ZARR, PROBABILITIES_ZARR = "labels.zarr", "probabilities.zarr"
OVERLAY, PICTURE, THUMBNAIL, REPORT = "overlay.png", "slide.jpg", "thumbnail.jpg", "report.html"
FAMILIARITY_MAP = "familiarity.jpg"
CORRECTIONS = "corrections.jsonl"  # What a person changed, step by step
CORRECTED = "corrected"  # Folder with the files above once more, made from the corrected mask

# Of a slide, for the program alone: ``OUT/<slide id>/.ntrm/…``

HIDDEN = ".ntrm"
DONE, FAILED, LOCK = "done.json", "failed.json", "lock"
TEXTURE, TEXTURE_LOCK, CORRECTIONS_LOCK = "texture.npz", "texture.lock", "corrections.lock"
SOURCE = "source.sha256"  # Which version of its objects a slide from object storage was
PIECES = "pieces.npz"  # Which pixel belongs to which piece
CORRECTED_LOCK, CORRECTED_NEW, CORRECTED_OLD = "corrected.lock", "corrected-new", "corrected-old"
"""The corrected version while it is made, and the one before while it is replaced."""


def table_file(table: str) -> str:
    """File of a table, such as ``regions.csv``."""
    return f"{table}.csv"
