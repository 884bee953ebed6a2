"""A slide on the page, as a person looks at it."""

import json
import re

import numpy as np
import pytest
import tifffile
from PIL import Image
from tests.service.browser.conftest import settled
from tests.service.browser.driving import picture, until
from tests.service.browser.looking import (
    PANE,
    SAME,
    VIEW,
    WINDOWS,
    classes,
    difference,
    home_place,
    large_region,
    longest_interface,
    mean_around,
    set_opacity,
    yellow_pixels,
)


@pytest.fixture
def opaque_page(slide_page):
    """The slide under opaque tissues, without measured lines."""
    page = slide_page().page
    page.keyboard.press("m")
    set_opacity(page, 100)
    settled(page)
    return page


def test_tiles_and_overlay_show_the_right_place_and_colour(opaque_page, service):
    page = opaque_page
    _, (x, y) = large_region(service, "BCC")
    place = home_place(page, service, x, y)

    assert difference(page, place, classes(service)["BCC"]["colour"]) <= 3
    page.get_by_role("button", name="Colours for colour-blind readers").click()
    page.wait_for_function("() => document.querySelector('[data-palette]').getAttribute('aria-pressed') === 'true'")
    until(lambda: difference(page, place, classes(service)["BCC"]["safe_colour"]) <= 3)

    page.keyboard.press("t")
    near = mean_around(tifffile.imread(service.path), int(x), int(y), 3)
    box = page.locator(".stage").bounding_box()
    column, row = round(place[0] - box["x"]), round(place[1] - box["y"])
    until(lambda: np.abs(mean_around(picture(page), column, row, 2) - near).max() < 25)


def test_legend_switches_a_tissue_without_a_blank_frame(opaque_page, service):
    page, seen = opaque_page, []
    (place, colour), (other_place, other_colour) = (
        (home_place(page, service, *large_region(service, name)[1]), classes(service)[name]["colour"])
        for name in ("BCC", "INF")
    )

    def shown():
        # Until the new picture is there the old one stays: the other tissue is never blank.
        seen.append(difference(page, other_place, other_colour))
        return difference(page, place, colour)

    page.get_by_role("checkbox", name=re.compile("BCC")).uncheck()
    until(lambda: shown() > 60)
    page.get_by_role("checkbox", name=re.compile("BCC")).check()
    until(lambda: shown() <= 3)

    assert max(seen) <= 3
    amount = page.locator('.legend [data-tissue="BCC"] .number').first.inner_text()
    summary = service.json(f"/v1/slides/{service.slide}/summary")
    assert amount == f"{summary['areas_mm2']['BCC']:.2f} mm²"


def test_an_edge_of_the_graph_marks_the_interface_and_reads_it_out(slide_page, service):
    page = slide_page().page
    page.keyboard.press("m")
    page.get_by_role("tab", name="Relations").click()
    before = yellow_pixels(page)
    reference = longest_interface(service)
    a, b = reference["pair"]
    edge = page.locator(f'[data-edge="{a}-{b}"] .hit')

    edge.dispatch_event("click")
    until(lambda: yellow_pixels(page) > 50)

    assert before == 0
    reading = page.locator(".reading").inner_text()
    assert f"{reference['mm']:.{2 if reference['mm'] < 10 else 1}f} mm" in reading
    assert f"{reference['contacts']}" in reading
    page.keyboard.press("Escape")
    until(lambda: yellow_pixels(page) == 0)
    assert page.locator(".reading").inner_text() == ""


def test_an_edge_of_the_attention_shows_the_windows_behind_it(open_page, service):
    page = open_page(f"/#/slide/{service.lost}").page
    page.keyboard.press("m")
    page.get_by_role("tab", name="Relations").click()
    page.get_by_role("radio", name="Attention").click()
    assert "not biology" in page.locator(".note.strong").inner_text()
    # No message is multiplied by the edge weights, so that nothing trained them.
    assert page.get_by_role("radio", name="Edge weights").get_attribute("title") == "Not used by this model"
    page.locator(".numbers tbody tr button").first.click()
    a, b = page.locator(".reading h3").inner_text().split(" – ")
    network = service.json(f"/v1/slides/{service.lost}/graph")["network"]
    i, j = network["names"].index(a), network["names"].index(b)
    reading = page.locator(".reading").inner_text()
    assert f"{np.mean([layer[i][j] for layer in network['attention']]):.4f}" in reading
    assert f"{network['edge_windows'][i][j]} window" in reading
    boxes = next(edge["windows"] for edge in network["strongest_windows"] if edge["source"] == a)
    until(lambda: len(page.evaluate(WINDOWS)) == 3)  # the same for both directions
    tiles = service.json(f"/v1/slides/{service.lost}/tiles")
    sx, sy = tiles["mask_to_image"][:2]
    for (left, top, right, bottom), box in zip(page.evaluate(WINDOWS), boxes, strict=True):
        assert (left, top) == pytest.approx((box["left"] * sx, box["top"] * sy))
        assert (right - left, bottom - top) == pytest.approx((box["width"] * sx, box["height"] * sy))

    page.get_by_role("button", name=f"Window 2 of {a} → {b}, attention 0.800").click()
    middle = [(boxes[1]["left"] + 32) * sx / tiles["width"], (boxes[1]["top"] + 32) * sy / tiles["width"]]
    until(lambda: page.evaluate(VIEW)[1:] == pytest.approx(middle, abs=1e-3))
    assert page.locator(".window-marks .chosen").count() == 1
    page.keyboard.press("Escape")
    until(lambda: page.evaluate(WINDOWS) == [])


def test_measurements_stand_where_they_were_taken(slide_page, service):
    page = slide_page().page
    summary = service.json(f"/v1/slides/{service.slide}/summary")
    sx, sy, ox, oy = summary["grid"]["to_level0"]
    depth = summary["pieces"][0]["measurements"]["invasion_depth"]

    page.get_by_role("tab", name="Measures").click()
    line = page.locator("line.measure.depth").first
    drawn = [float(line.get_attribute(name)) for name in ("x1", "y1", "x2", "y2")]
    box = page.locator(PANE).bounding_box()
    expected = []
    for row, column in depth["line_px"]:
        x, y = home_place(page, service, (column + 0.5) * sx + ox, (row + 0.5) * sy + oy)
        expected += [x - box["x"], y - box["y"]]

    assert np.allclose(drawn, expected, atol=1.0)
    assert f"{depth['value']:.2f} mm" in page.locator('[data-measure="invasion_depth"]').first.inner_text()
    page.get_by_label("Draw lines").uncheck()
    assert page.locator("line.measure").count() == 0


def test_pieces_are_stepped_through_and_turned_surface_up(slide_page, service):
    page = slide_page().page
    summary = service.json(f"/v1/slides/{service.slide}/summary")
    width = summary["grid"]["slide"]["width"]
    sx, sy = summary["grid"]["to_level0"][:2]

    page.get_by_role("button", name="Skin surface up").click()
    for piece in summary["pieces"]:
        page.get_by_role("button", name="Next piece").click()
        page.wait_for_function(
            "text => document.querySelector('.stepper').textContent.includes(text)", arg=f"Piece {piece['number']} of 2"
        )
        turned, x, y = page.evaluate(VIEW)
        box = piece["mask_box_px"]
        off = turned + piece["measurements"]["orientation"]["value"]
        assert (off + 180) % 360 == pytest.approx(180, abs=0.01)
        assert x == pytest.approx((box["left"] + box["width"] / 2) * sx / width, abs=1e-3)
        assert y == pytest.approx((box["top"] + box["height"] / 2) * sy / width, abs=1e-3)
    page.get_by_role("button", name="Next piece").click()
    assert "All 2 pieces" in page.locator(".stepper").inner_text()


def test_a_place_is_read_by_pointer(slide_page, service):
    page = slide_page().page
    measured, (x, y) = large_region(service, "BCC")
    place = home_place(page, service, x, y)

    page.mouse.move(*place)
    page.locator(".readout", has_text="basal cell carcinoma").wait_for()
    page.mouse.click(*place)
    page.locator("#panel-region dl").wait_for()

    text = page.locator("#panel-region").inner_text()
    assert f"{measured['Area mm^2']:.2f} mm²" in text
    assert "basal cell carcinoma" in text
    assert f"{measured['Mean confidence']:.2f}" in text
    page.keyboard.press("Escape")
    page.locator(".region-outline").wait_for(state="detached")
    assert "Click a place" in page.locator("#panel-region").inner_text()


def test_first_and_final_segmentation_are_compared(slide_page):
    page = slide_page().page
    page.keyboard.press("m")
    page.keyboard.press("w")
    page.locator(".divider").wait_for()
    page.wait_for_function(SAME)
    settled(page)
    page.locator(".divider").focus()
    middle = picture(page)
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    until(lambda: not np.array_equal(picture(page), middle))
    page.keyboard.press("d")
    page.wait_for_function("() => document.querySelector('.stage').dataset.compare === 'side'")
    page.keyboard.press("+")
    settled(page)
    page.wait_for_function(SAME)
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_function(SAME)
    page.keyboard.press("d")

    assert page.locator(".pane.second").is_hidden()
    assert page.locator(".divider").count() == 0


def test_everything_can_be_downloaded(slide_page, service, tmp_path):
    page = slide_page(accept_downloads=True).page
    got = {}
    for item in ("Polygons", "Mask", "Summary", "This view", "Tissue graph"):
        page.get_by_role("button", name="Download").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=item).click()
        got[item] = tmp_path / download.value.suggested_filename
        download.value.save_as(got[item])

    assert json.loads(got["Polygons"].read_text()) == service.json(f"/v1/slides/{service.slide}/regions.geojson")
    assert got["Mask"].read_bytes() == service.ask("GET", f"/v1/slides/{service.slide}/mask")[1]
    view = Image.open(got["This view"])
    box = page.locator(".panes").bounding_box()
    assert view.size == (round(box["width"]), round(box["height"] + 52))
    assert len(np.unique(np.asarray(view.convert("RGB")).reshape(-1, 3), axis=0)) > 1000
    graph = got["Tissue graph"].read_text()
    assert graph.startswith("<svg")
    assert 'xmlns="http://www.w3.org/2000/svg"' in graph
    assert ">BCC<" in graph
    page.get_by_role("button", name="Download").click()
    with page.context.expect_page() as report:
        page.get_by_role("menuitem", name="Report").click()
    report.value.wait_for_load_state()
    assert report.value.url.endswith("/report")


def test_a_slide_without_its_file_and_with_a_known_truth(open_page, service):
    page = open_page(f"/#/slide/{service.lost}").page
    page.wait_for_selector(".legend li")
    settled(page)
    page.get_by_text("The slide's file was not found").wait_for()
    page.keyboard.press("m")
    corner, colours = picture(page)[-5, 300], picture(page).reshape(-1, 3)
    page.get_by_role("radio", name="Improvement").click()
    green = np.array([26, 152, 80]) * 0.5 + 127.5  # half transparent on white
    until(lambda: (np.abs(picture(page).astype(int) - green).max(axis=2) <= 3).sum() > 20)
    page.keyboard.press("b")
    blue = np.array([0, 90, 181]) * 0.5 + 127.5
    until(lambda: (np.abs(picture(page).astype(int) - blue).max(axis=2) <= 3).sum() > 20)
    assert "(blue)" in page.locator(".layers .note").inner_text()

    assert len(np.unique(colours, axis=0)) > 5, "the overlay is there"
    assert corner.tolist() != [0, 0, 0]
