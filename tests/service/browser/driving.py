"""A slide to look at, and a page whose faults are noticed."""

import base64
import io
import itertools
import json
import os
import re
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image
from tests.helpers import wait_for

from ntrm.core.labels import SKIN
from ntrm.phantom.layout import layout
from ntrm.phantom.render import render
from ntrm.results.documents import EdgeWindow, Network, StrongestWindows
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options

MPP = 3.35  # Of the slide; half of the model's, so that mask and slide differ in their pixels
SEED = 10


def find_chromium():
    """Debian's Chromium, or None."""
    found = os.environ.get("NTRM_CHROMIUM") or shutil.which("chromium")
    return found if found and Path(found).exists() else None


def write_slide(path, mpp=MPP, copies=2):
    """A phantom section, and the same turned around below it: two pieces whose surfaces face opposite ways."""
    picture = render(layout(SEED, 6.7, "BCC").mask, 6.7, SEED)
    glass = np.broadcast_to(np.median(picture[:4].reshape(-1, 3), axis=0).astype(np.uint8), (24, picture.shape[1], 3))
    pieces = [picture, glass, picture[::-1, ::-1]] if copies == 2 else [picture]
    pixels = np.concatenate(pieces).repeat(2, axis=0).repeat(2, axis=1)
    tags = {} if mpp is None else {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, photometric="rgb", tile=(256, 256), compression="zlib", metadata=None, **tags)
    return path


def write_results(path, out):
    """Segment a slide; the same results once more as ``lost``: of a file that is nowhere, with its mask as truth.

    Whatever the network of the model has, ``lost`` is given relations of three layers, and ``two`` has none.
    """
    done = segment_slides(path, out=out, device="cpu", options=Options(maps=True))
    assert done.exit_code == 0, done.slides
    lost = shutil.copytree(out / path.stem, out / "lost")
    shutil.copy(lost / "mask.ome.tif", lost / "truth.ome.tif")
    graph = json.loads((lost / "graph.json").read_text())
    (out / path.stem / "graph.json").write_text(json.dumps({**graph, "network": None}))
    graph["network"] = asdict(drawn_relations(graph["grid"]))
    (lost / "graph.json").write_text(json.dumps(graph))
    record = lost / ".ntrm" / "done.json"
    document = json.loads(record.read_text())
    document["plan"]["source"] = "0" * 64
    record.write_text(json.dumps(document))


def drawn_relations(grid):
    """Relations of a network that trains no edge weights: every edge is there, and has three windows."""
    random = np.random.default_rng(SEED)
    pairs = itertools.permutations(SKIN.names, 2)
    tops, lefts = (random.integers(0, grid[side] - 64, 3).tolist() for side in ("height", "width"))
    windows = tuple(EdgeWindow(*at, 64, 64, share) for *at, share in zip(tops, lefts, (0.9, 0.8, 0.7), strict=True))
    return Network(
        SKIN.names,
        attention=tuple(tuple(map(tuple, layer)) for layer in random.random((3, len(SKIN), len(SKIN))).tolist()),
        edge_windows=tuple(map(tuple, random.integers(1, 99, (len(SKIN), len(SKIN))).tolist())),
        edge_weight=None,
        strongest_windows=tuple(StrongestWindows(one, other, windows) for one, other in pairs),
        windows=123,
    )


until = partial(wait_for, "the page to change")


class Watched:
    """A page whose faults are kept: console errors, uncaught exceptions, requests to anywhere else."""

    def __init__(self, page, address):
        self.page = page
        self.faults = []
        self.expected = ["status of 503", "Tile %s failed to load"]
        """Patterns of faults that a test provokes; a tile that takes long on a busy machine is asked for again."""
        self._own = (f"{address}/", "data:", "blob:")
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.context.on("request", self._check)

    def _note(self, message):
        if message.type == "error":
            self.faults.append(f"{message.text} {message.location}")

    def _check(self, request):
        if not request.url.startswith(self._own):
            self.faults.append(f"request to {request.url}")

    def unexpected(self):
        """Faults that no test asked for."""
        return [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in self.expected)]


DROP = """([name, content]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""


def drop(page, path, name=None):
    """Let a file fall on the page."""
    page.evaluate(DROP, [name or path.name, base64.b64encode(path.read_bytes()).decode()])


def call(page, module, name, *arguments):
    """What an exported function of one of the page's modules returns."""
    script = "async ([module, name, given]) => (await import(`/page/js/${module}`))[name](...given)"
    return page.evaluate(script, [module, name, list(arguments)])


def picture(page, selector=".stage"):
    """Pixels of a part of the page as (H, W, 3)."""
    return np.asarray(Image.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB"))
