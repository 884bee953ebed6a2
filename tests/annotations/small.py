"""Two small slides with annotations, and their import within this process."""

import csv
import json
from functools import partial
from pathlib import Path

from ntrm.annotations import importing
from ntrm.slides.readers.formats import open_slide

# In this process: a child for each slide takes longer than its import.
import_annotations = partial(importing.import_annotations, open_slide=open_slide)


def box(left, top, right, bottom):
    return [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]


def drawn(name, *rings):
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": list(rings)},
        "properties": {
            "objectType": "annotation",
            "classification": {"name": name, "color": [0, 0, 0]} if name else None,
        },
    }


def annotate(path: Path, *features) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def rows(path: Path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))
