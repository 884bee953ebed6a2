"""Tissues named from nothing: a folder without a model, whose classes are made on the page."""

import pytest
from tests.service.browser.conftest import settled
from tests.service.browser.correcting import corrections, shows, wait_for_version
from tests.service.browser.driving import write_slide
from tests.service.browser.looking import PANE, home_place, set_opacity
from tests.service.running import Running

from ntrm.results.classes import given_classes
from ntrm.segment.annotate import Blank
from ntrm.segment.batch import segment_slides


@pytest.fixture(scope="module")
def service(chromium, tmp_path_factory):
    assert chromium
    folder = tmp_path_factory.mktemp("annotated")
    slide = write_slide(folder / "one.tif", copies=1)
    done = segment_slides(slide, out=folder / "out", model=Blank(given_classes("stroma,nerve")), device="cpu")
    assert done.exit_code == 0, done.slides
    with Running(folder / "out", "bundled", "--root", str(folder)) as running:
        running.slide = running.json("/v1/slides")["slides"][0]["id"]
        yield running


def test_tissues_are_added_painted_and_renamed(open_page, service):
    watched = open_page(f"/#/slide/{service.slide}")
    watched.expected.append("status of 422")  # a name that is taken
    page = watched.page
    page.get_by_role("button", name="Name its tissues").click()
    names = page.locator(".names [data-name]")
    assert names.evaluate_all("all => all.map((one) => one.dataset.name)") == ["stroma", "nerve", "background"]

    page.get_by_role("button", name="Tissue", exact=True).click()
    page.keyboard.type("nerve")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("share a name").wait_for()  # and the form stays
    page.keyboard.type(" =1+1 ½")
    page.keyboard.press("Enter")
    page.locator(".names [data-name='nerve =1+1 ½']").wait_for()

    page.keyboard.press("f")
    page.keyboard.press("3")  # the background has moved on
    settled(page)
    places = [home_place(page, service, 500, y) for y in (150, 300)]
    page.locator(PANE).focus()
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()
    step = wait_for_version(service, service.slide, 1)["steps"][0]
    assert (step["action"], step["tissue"]) == ("draw", "nerve =1+1 ½")
    page.locator(".steps li").get_by_text("nerve =1+1 ½").wait_for()

    page.get_by_role("button", name="Name and colour of nerve =1+1 ½").click()
    page.get_by_label("Colour", exact=True).fill("#0a6e31")
    page.get_by_label("Name of the tissue").fill("gland")
    page.keyboard.press("Enter")
    page.locator(".steps li").get_by_text("Gland").wait_for()
    assert page.locator(".names [aria-pressed=true]").get_attribute("data-name") == "gland"  # the brush paints it still
    assert corrections(service, service.slide)["steps"][0]["tissue"] == "gland"
    page.get_by_role("tab", name="Tissues").click()
    set_opacity(page, 100)
    page.locator(PANE).focus()
    settled(page)
    assert shows(page, service, (500, 225), "gland")
    legend = page.locator(".legend li")
    assert legend.evaluate_all("rows => rows.map((row) => row.dataset.tissue)")[-1] == "unnamed"
    assert not page.get_by_role("checkbox", name="unnamed").is_checked()
