"""Small slides whose mask is known: painted in class colours, on glass."""

import csv
import hashlib
import json
from threading import Lock

import numpy as np
from scipy import ndimage
from tests.evaluation.small import COLOURS, MPP, NAMES, ByColour

from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.segment.batch import segment_slides
from ntrm.segment.predict import Maps
from ntrm.slides.readers.formats import open_slide

BKG = NAMES.index("BKG")


def paint(random, height=190, width=130, pieces=1):
    """A mask with pieces of skin one above the other: SCC in dermis under an epidermis, glass around."""
    mask = np.full((height * pieces, width), BKG, dtype=np.uint8)
    for top in range(0, height * pieces, height):
        left, right = (int(n) for n in random.integers(10, 25, 2))
        body = mask[top + 60 : top + height - 50, left : width - right]
        body[:] = NAMES.index("RET")
        body[:8] = NAMES.index("EPI")
        body[20:40, 30:60] = NAMES.index("SCC")
    return mask


def speckled(random, mask, specks=6):
    """The mask with small squares of another tissue in its dermis and on its glass, none of which touches another."""
    found = mask.copy()
    for _ in range(specks):
        even = ndimage.maximum_filter(found, 11) == ndimage.minimum_filter(found, 11)
        places = np.argwhere((even & np.isin(found, (NAMES.index("RET"), BKG)))[5:-5, 5:-5]) + 5
        top, left = places[random.integers(len(places))]
        found[top : top + random.integers(1, 3), left : left + random.integers(1, 3)] = NAMES.index("EPI")
    return found


def write_slide(path, mask, mpp=MPP):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, np.array(COLOURS, dtype=np.uint8)[mask], Resolution.square(mpp))
    return path


def run(inputs, out, model=None, **more):
    """Segment slides with a network, else with the one that names colours."""
    return segment_slides(inputs, out=out, model=model or ByColour(), device="cpu", **{"batch": 2, **more})


def rows_of(out, table="slides"):
    with (out / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def document(folder, name="summary.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def fingerprints(folder):
    """SHA-256 of every file but locks, by its path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class InProcess:
    """Stands for a ``ReadingProcess``."""

    def __init__(self, _limits=None):
        self.alive = True
        self._reader = None
        self._lock = Lock()

    def open(self, path, *, alone=False):
        self._reader = open_slide(path, alone=alone)
        return self.info

    @property
    def info(self):
        return self._reader.info

    def read(self, *place):
        with self._lock:
            return self._reader.read(*place)

    def close(self):
        self.alive = False
        if self._reader is not None:
            self._reader.close()


def fail_at(monkeypatch, number, error):
    """Raise an error in place of keeping the predicted rows of this number, once."""
    fill, calls = Maps.fill, iter(range(99))

    def failing(*arguments):
        if next(calls) == number:
            raise error
        fill(*arguments)

    monkeypatch.setattr(Maps, "fill", failing)
