"""Slides to be corrected, and what the service says about their corrections."""

import json
import shutil

from tests.helpers import wait_for
from tests.service.browser.driving import until, write_slide
from tests.service.browser.looking import PANE, classes, difference, home_place
from tests.service.running import Running

from ntrm.correct.engine import ENGINE
from ntrm.correct.mask import open_mask
from ntrm.results.familiarity import NO_REFERENCE
from ntrm.results.paths import SUMMARY
from ntrm.segment.batch import segment_slides
from ntrm.slides.inputs import SlideInput

KEYS = dict(zip(("EPI", "GLD", "INF", "RET", "FOL", "PAP", "HYP", "KER", "BCC"), "123456789", strict=True)) | {
    "SCC": "q",
    "IEC": "y",
    "BKG": "h",
}
"""Keys of the skin's tissues, as the page shows them."""


FRESH, LOST = "fresh", "lost"  # A slide that has no region graph yet, and one whose original is nowhere


def serve(folder):
    return Running(folder / "out", "bundled", "--root", str(folder / "root"))


def find_slides(running):
    """Their ids by name, once the originals are found."""

    def found():
        slides = {slide["slide_id"]: slide for slide in running.json("/v1/slides")["slides"]}
        return slides if all(slide["has_image"] for key, slide in slides.items() if key != LOST) else None

    return {key: slide["id"] for key, slide in until(found).items()}


def write_slides(folder, names):
    """One section under many names: each test corrects its own; and ``FRESH`` and ``LOST``."""
    (folder / "root").mkdir()
    path = write_slide(folder / "root" / f"{FRESH}.tif", copies=1)
    done = segment_slides(path, out=folder / "out", device="cpu")
    assert done.exit_code == 0, done.slides
    first = folder / "out" / FRESH
    _forget_familiarity(first)
    gone = shutil.copytree(first, folder / "out" / LOST) / ".ntrm" / "done.json"
    document = json.loads(gone.read_text())
    document["plan"]["source"] = "0" * 64
    gone.write_text(json.dumps(document))
    ready = shutil.copytree(first, folder / "out" / names[0])
    ENGINE.prepare(open_mask(ready), SlideInput(path, path.name))
    for name in names[1:]:
        shutil.copytree(ready, folder / "out" / name)


def _forget_familiarity(slide):
    """Let more follow a click than what touches it, which is all that does on a slide that the model knows."""
    path = slide / SUMMARY
    document = json.loads(path.read_text())
    document["familiarity"] |= {"verdict": NO_REFERENCE, "p_value": None, "aspects": {}}
    path.write_text(json.dumps(document))


def corrections(service, slide):
    return service.json(f"/v1/slides/{slide}/corrections")


def wait_for_version(service, slide, version):
    def there():
        now = corrections(service, slide)
        return now if now["version"] == version else None

    return wait_for(f"version {version} of the corrections", there)


def preview(service, slide, place, tissue, **more):
    """What the service says would follow, asked without the page."""
    body = {
        "action": "name",
        "version": corrections(service, slide)["version"],
        "points": [place],
        "tissue": tissue,
        **more,
    }
    status, content = service.ask("POST", f"/v1/slides/{slide}/corrections/preview", body)
    assert status == 200, content
    return json.loads(content)


def begin(page):
    """Correct: the mode is on."""
    page.keyboard.press("m")
    page.keyboard.press("e")
    page.locator(".stage.correcting").wait_for()
    page.locator(".names button").first.wait_for()


def pick(page, service, place, *modifiers):
    page.locator(PANE).focus()
    page.mouse.move(*home_place(page, service, *place))
    for key in modifiers:
        page.keyboard.down(key)
    page.mouse.click(*home_place(page, service, *place))
    for key in modifiers:
        page.keyboard.up(key)
    page.locator(".corrections .picked.over").wait_for(state="attached")


def name(page, tissue):
    """Press a tissue's key, and wait for what would follow."""
    page.keyboard.press(KEYS[tissue])
    until(lambda: page.locator(".follows").inner_text().endswith("."))
    return page.locator(".follows").inner_text()


def steps(page):
    """Numbers of the steps on the page, the latest first, and whether they count."""
    return page.locator(".steps li").evaluate_all(
        "rows => rows.map((row) => [Number(row.dataset.step), !row.classList.contains('undone')])"
    )


def shows(page, service, place, tissue):
    """Whether the slide has the colour of a tissue at a place."""
    return difference(page, home_place(page, service, *place), classes(service)[tissue]["colour"]) <= 3


def keep_ignorant(page, old):
    """Let a page believe the ``old`` state until it is refused once."""
    refused = []

    def note(response):
        if response.status == 409:
            refused.append(response.url)

    def answer(route):
        if route.request.method == "GET" and not refused:
            route.fulfill(json=old)
        else:
            route.continue_()

    page.on("response", note)
    page.route("**/corrections", answer)


def to_review(service):
    """Regions in the order in which the keyboard steps through them."""
    return service.json(f"/v1/slides/{service.slide}/corrections/regions")


def says(page, text):
    """Wait until a screen reader is told something that begins so, and it is seen, too."""
    until(lambda: page.locator("#says").inner_text().startswith(text))
    told(page, text)


def drawn(page, kind):
    """Points of what is drawn, in pixels of the slide."""
    path = page.locator(f".corrections {kind}").first.get_attribute("d")
    return [tuple(map(float, point.split())) for point in path.replace("M", "").replace("Z", "L").split("L") if point]


def inside_drawn(page, kind, place):
    """Whether the box of what is drawn holds a place."""
    columns = zip(*drawn(page, kind), strict=True)
    return all(min(values) <= at <= max(values) for values, at in zip(columns, place, strict=True))


CENTRE = """([x, y, width]) => {
  const { viewport } = window.OpenSeadragon.getViewer(document.querySelector(".pane"));
  viewport.panTo(new window.OpenSeadragon.Point(x / width, y / width), true);
}"""


def shows_in_the_middle(page, service, tissue):
    box = page.locator(PANE).bounding_box()
    # Beside the crosshair.
    middle = box["x"] + box["width"] / 2 - 14, box["y"] + box["height"] / 2
    return difference(page, middle, classes(service)[tissue]["colour"]) <= 3


def told(page, text):
    """Wait until the page says this beside what is chosen."""
    page.locator(".told").filter(has_text=text).wait_for()


def hold(page, addresses):
    """Keep requests back; returns how to let them go."""
    held, released = [], []

    def keep(route):
        if released:
            route.continue_()
        else:
            held.append(route)

    def release():
        released.append(True)
        for route in held:
            route.continue_()

    page.route(addresses, keep)
    return release
