"""Correcting a slide on the page, as a person does it."""

import json

import numpy as np
import pytest
from shapely.geometry import Point, Polygon
from tests.service.browser import correcting
from tests.service.browser.conftest import settled
from tests.service.browser.correcting import (
    FRESH,
    LOST,
    corrections,
    hold,
    keep_ignorant,
    name,
    pick,
    preview,
    shows,
    steps,
    told,
    wait_for_version,
)
from tests.service.browser.driving import call, until
from tests.service.browser.looking import PANE, home_place, large_region

SLIDES = ("accept", "undo", "conflict", "lasso", "whole", "versions", "brush", "divide")


@pytest.fixture(scope="module")
def service(corrected_service):
    return corrected_service


def test_a_part_is_named_and_what_looks_like_it_follows(correct_page, service):
    page = correct_page("accept").page
    _, place = large_region(service, "BCC")
    pick(page, service, place)
    expected = preview(service, service.slide, place, "SCC")
    said = name(page, "SCC")

    regions, area = (sum(group[key] for group in expected["followed"]) for key in ("regions", "area_mm2"))
    assert regions > 3
    assert said.startswith(f"{regions} other parts would follow, {area:.2f} mm²")
    assert expected["parts"][0]["why"] in page.locator(".followers").text_content()
    assert page.locator(".corrections .named.under").count() == 1
    assert corrections(service, service.slide)["version"] == 0
    release = hold(page, "**/tiles/corrected/**")
    page.keyboard.press("Enter")
    now = wait_for_version(service, service.slide, 1)
    until(lambda: steps(page) == [[1, True]])
    assert page.locator(".corrections .named.under").count() == 2, "drawn until the tiles are there"
    release()
    assert now["regions"] == expected["regions"] == regions + 1
    assert f", {now['regions']} parts, " in page.locator(".steps li").inner_text()
    page.get_by_text(f"corrected by a person, {now['regions']} parts").first.wait_for()
    page.locator(".corrections .named").first.wait_for(state="detached")
    page.mouse.move(5, 5)
    until(lambda: shows(page, service, place, "SCC"))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.locator(f'.row[data-id="{service.slide}"]').get_by_text("Corrected, 1 step").wait_for()


def test_steps_are_undone_and_done_again(correct_page, service):
    page = correct_page("undo").page
    _, place = large_region(service, "BCC")
    page.get_by_label("Name only what I picked").check()
    for tissue in ("SCC", "IEC", "KER"):
        pick(page, service, place)
        page.keyboard.press(correcting.KEYS[tissue])
        until(lambda wanted=tissue: shows(page, service, place, wanted))
    assert steps(page) == [[3, True], [2, True], [1, True]]

    page.keyboard.press("z")
    until(lambda: steps(page) == [[3, False], [2, True], [1, True]])
    page.keyboard.press("Control+z")
    until(lambda: steps(page) == [[3, False], [2, False], [1, True]])
    page.keyboard.press("Z")
    until(lambda: steps(page) == [[3, False], [2, True], [1, True]])
    page.get_by_role("button", name="Undo step 2 and what came after it").dblclick()
    told(page, "Step 2 and what came after it are undone.")
    assert steps(page) == [[3, False], [2, False], [1, True]]
    page.get_by_role("button", name="Undo step 1 and what came after it").click()
    until(lambda: steps(page) == [[3, False], [2, False], [1, False]])
    until(lambda: shows(page, service, place, "BCC"))
    assert page.get_by_role("button", name="Undo (z)").is_disabled()


def test_two_pages_on_one_slide_see_each_other(correct_page, service):
    watched, other = correct_page("conflict"), correct_page("conflict").page
    page, (_, place) = watched.page, large_region(service, "BCC")
    watched.expected.append("status of 409")
    keep_ignorant(page, corrections(service, service.slide))
    pick(page, service, place)
    name(page, "SCC")
    pick(other, service, place)
    name(other, "IEC")
    other.keyboard.press("Enter")
    wait_for_version(service, service.slide, 1)

    page.keyboard.press("Enter")
    told(page, "Corrected elsewhere: step 1")
    told(page, "Your choice was not written.")
    assert corrections(service, service.slide)["version"] == 1
    assert steps(page) == [[1, True]]
    until(lambda: page.get_by_role("button", name="Accept").is_enabled())
    page.keyboard.press("Enter")
    # Its request goes through this process, which must listen to the page until it is answered.
    until(lambda: steps(page) == [[2, True], [1, True]])
    assert corrections(service, service.slide)["version"] == 2


def test_a_stroke_of_the_brush_is_written(correct_page, service):
    page = correct_page("brush").page
    _, (x, y) = large_region(service, "BCC")
    start, end = home_place(page, service, x - 12, y), home_place(page, service, x + 12, y)

    page.get_by_role("radio", name="Brush").click()
    page.keyboard.press(correcting.KEYS["SCC"])
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=6)
    assert page.locator(".corrections .brush").count() == 1
    page.mouse.up()
    now = wait_for_version(service, service.slide, 1)
    page.mouse.move(5, 5)
    until(lambda: shows(page, service, (x, y), "SCC"))
    # A stroke is a rectangle with round ends; the slide's pixels are 3.35 µm wide.
    stroke = 80 * 24 * 3.35 + 3.1416 * 40**2
    assert now["area_mm2"] == pytest.approx(stroke / 1e6, rel=0.2)
    assert now["steps"][0]["action"] == "draw"


def test_a_line_divides_a_region(correct_page, service):
    page = correct_page("divide").page
    _, (x, y) = large_region(service, "BCC")
    before = corrections(service, service.slide)
    page.keyboard.press("k")
    page.mouse.move(*home_place(page, service, x, y - 400))
    page.mouse.down()
    page.mouse.move(*home_place(page, service, x, y + 400), steps=4)
    page.mouse.up()
    page.mouse.click(*home_place(page, service, x + 10, y))
    page.locator(".corrections .mark").wait_for(state="attached")
    page.keyboard.press(correcting.KEYS["SCC"])

    wait_for_version(service, service.slide, before["version"] + 1)
    page.mouse.move(5, 5)
    until(lambda: shows(page, service, (x + 10, y), "SCC"))
    assert shows(page, service, (x - 10, y), "BCC")


def test_parts_inside_a_lasso_are_named(correct_page, service):
    page = correct_page("lasso").page
    _, (x, y) = large_region(service, "BCC")
    corners = [(x - 40, y - 40), (x + 40, y - 40), (x + 40, y + 40), (x - 40, y + 40)]
    page.keyboard.press("a")
    page.mouse.move(*home_place(page, service, *corners[0]))
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*home_place(page, service, *corner), steps=3)
    page.mouse.up()
    page.get_by_text("Parts inside the line").wait_for()
    name(page, "SCC")
    said = page.locator(".chosen").inner_text()

    body = {"action": "name", "version": 0, "lasso": corners, "tissue": "SCC"}
    answer = json.loads(service.ask("POST", f"/v1/slides/{service.slide}/corrections/preview", body)[1])
    assert answer["named"]["area_mm2"] > 0
    assert said.startswith(f"1 part, {answer['named']['area_mm2']:.2f} mm²")


def test_a_place_is_inside_rings_as_geometry_says(open_page, random):
    angles = np.sort(random.uniform(0, 2 * np.pi, 12))
    outer = np.stack([np.cos(angles), np.sin(angles)], axis=1) * random.uniform(20, 40, (12, 1))
    rings, places = [outer.tolist(), (outer / 3).tolist()], random.uniform(-40, 40, (60, 2)).tolist()
    expected = [Polygon(rings[0]).contains(Point(at)) != Polygon(rings[1]).contains(Point(at)) for at in places]
    page = open_page().page

    assert [call(page, "correct-drawing.js", "isInside", rings, at) for at in places] == expected
    assert 5 < sum(expected) < 55


def test_both_versions_are_compared_read_and_downloaded(correct_page, service):
    page = correct_page("versions", accept_downloads=True).page
    _, place = large_region(service, "BCC")
    pick(page, service, place)
    name(page, "SCC")
    page.keyboard.press("Enter")
    wait_for_version(service, service.slide, 1)
    until(lambda: corrections(service, service.slide)["corrected"])
    page.get_by_role("tab", name="Tissues").click()
    summary = service.json(f"/v1/slides/{service.slide}/corrected/summary")
    amount = page.locator('.legend [data-tissue="SCC"] .number').first
    until(lambda: amount.inner_text() == f"{summary['areas_mm2']['SCC']:.2f} mm²")

    page.keyboard.press("d")
    settled(page)
    assert page.locator(".tag").all_inner_texts() == ["Network", "Corrected"]
    page.keyboard.press("d")
    page.get_by_role("radio", name="Tissue", exact=True).click()
    until(lambda: amount.inner_text() == "–")
    page.get_by_role("radio", name="Corrected", exact=True).click()
    page.get_by_role("button", name="Download").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Corrected mask").click()
    assert download.value.path().read_bytes() == service.ask("GET", f"/v1/slides/{service.slide}/corrected/mask")[1]


def test_a_slide_is_divided_into_parts_the_first_time(correct_page, service):
    page = correct_page(FRESH).page
    until(lambda: corrections(service, service.slide)["graph"] == "ready")
    page.get_by_role("radio", name="Part", exact=True).and_(page.locator(":enabled")).wait_for()
    assert page.locator(".graph-state").is_hidden()
    _, place = large_region(service, "BCC")
    pick(page, service, place)
    assert "1 part," in page.locator(".chosen").inner_text()


def test_without_the_original_whole_regions_are_named(correct_page, service):
    page = correct_page(LOST).page
    page.get_by_text("the original of this slide is not there").wait_for()
    measured, place = large_region(service, "BCC")
    pick(page, service, place)
    assert f"1 region, {measured['Area mm^2']:.2f} mm²" in page.locator(".chosen").inner_text()
    page.keyboard.press(correcting.KEYS["SCC"])

    now = wait_for_version(service, service.slide, 1)
    assert now["area_mm2"] == pytest.approx(measured["Area mm^2"], rel=1e-6)
    assert page.locator(PANE).is_visible()


def test_a_whole_region_is_picked_and_shift_adds_another(correct_page, service):
    page = correct_page("whole").page
    page.get_by_role("radio", name="Whole region").click()
    (one, place), (other, beside) = large_region(service, "BCC"), large_region(service, "PAP")
    pick(page, service, place)
    pick(page, service, beside, "Shift")
    area = one["Area mm^2"] + other["Area mm^2"]
    until(lambda: page.locator(".chosen").inner_text() == f"2 regions, {area:.2f} mm², BCC, PAP")
    pick(page, service, beside, "Shift")
    until(lambda: page.locator(".chosen").inner_text().startswith("1 region,"))
