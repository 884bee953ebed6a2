"""Where things stand on the screen, and what is expected there, worked out without the page."""

import io

import numpy as np
from PIL import Image
from shapely.geometry import shape
from tests.service.browser.driving import picture

PANE = ".pane >> nth=0"
MARK = np.array([255, 214, 10])
VIEW = """() => {
  const { viewport } = window.OpenSeadragon.getViewer(document.querySelector(".pane"));
  return [viewport.getRotation(), viewport.getCenter().x, viewport.getCenter().y];
}"""
SAME = """() => {
  const panes = [...document.querySelectorAll(".pane")];
  const viewports = panes.map((pane) => window.OpenSeadragon.getViewer(pane)?.viewport);
  if (!viewports.every(Boolean)) return false;
  const [[zoom, centre], [other, beside]] = viewports.map((one) => [one.getZoom(true), one.getCenter(true)]);
  return Math.abs(zoom - other) < 1e-6 && centre.distanceTo(beside) < 1e-6;
}"""
"""Whether both viewers show the same place."""


def home_place(page, service, x, y):
    """Where a pixel of the slide stands on the screen when the whole slide is shown: fitted, in the middle."""
    tiles = service.json(f"/v1/slides/{service.slide}/tiles")
    box = page.locator(PANE).bounding_box()
    scale = min(box["width"] / tiles["width"], box["height"] / tiles["height"])
    left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    return left + (x - tiles["width"] / 2) * scale, top + (y - tiles["height"] / 2) * scale


def large_region(service, tissue):
    """The number of the largest region of a tissue, and a pixel of the slide deep inside it."""
    regions = service.json(f"/v1/slides/{service.slide}/regions.geojson")["features"]
    found = [item for item in regions if item["properties"]["classification"]["name"] == tissue]
    best = max(found, key=lambda item: shape(item["geometry"]).area)
    geometry = shape(best["geometry"])
    middle = geometry.buffer(-6).representative_point()
    return best["properties"]["measurements"], (middle.x, middle.y)


WINDOWS = """() => [...document.querySelectorAll(".window-marks .over")].map((path) => {
  const points = path.getAttribute("d").slice(1, -1).split("L").map((text) => text.split(" ").map(Number));
  const [x, y] = [0, 1].map((axis) => points.map((point) => point[axis]));
  return [Math.min(...x), Math.min(...y), Math.max(...x), Math.max(...y)];
})"""
"""The windows that are marked: left, top, right and bottom in pixels of the slide."""


def difference(page, place, colour):
    """Largest difference of a channel between the colour at a place of the screen and #rrggbb."""
    clip = {"x": round(place[0]), "y": round(place[1]), "width": 1, "height": 1}
    with Image.open(io.BytesIO(page.screenshot(clip=clip))) as shown:
        return np.abs(np.array(shown.convert("RGB").getpixel((0, 0))) - rgb(colour)).max()


def mean_around(image, x, y, margin):
    """Mean colour of a square of pixels."""
    return image[y - margin : y + margin + 1, x - margin : x + margin + 1].reshape(-1, 3).mean(axis=0)


def yellow_pixels(page):
    """How many pixels of the stage have the colour of a marked interface."""
    return int((np.abs(picture(page).astype(int) - MARK).max(axis=2) <= 12).sum())


def rgb(colour):
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])


def classes(service):
    return {tissue["name"]: tissue for tissue in service.json("/v1/about")["classes"]}


def set_opacity(page, percent):
    page.get_by_role("slider", name="Opacity of the layer").fill(str(percent))


def longest_interface(service):
    """Summed over the pieces by hand."""
    found = {}
    for piece in service.json(f"/v1/slides/{service.slide}/graph")["pieces"]:
        for edge in piece["graph"]["edges"]:
            if edge["kind"] == "boundary" and "outside" not in (edge["source"], edge["target"]):
                pair = found.setdefault((edge["source"], edge["target"]), [0.0, 0])
                pair[0] += edge["boundary_mm"]
                pair[1] += edge["contacts"]
    pair, (mm, contacts) = max(found.items(), key=lambda item: item[1][0])
    return {"pair": pair, "mm": mm, "contacts": contacts, "all": found}
