"""Correcting a slide by keyboard alone."""

import pytest
from tests.service.browser import correcting
from tests.service.browser.conftest import settled
from tests.service.browser.correcting import (
    CENTRE,
    corrections,
    drawn,
    hold,
    inside_drawn,
    name,
    preview,
    says,
    shows_in_the_middle,
    steps,
    to_review,
    told,
    wait_for_version,
)
from tests.service.browser.driving import until
from tests.service.browser.looking import large_region

from ntrm.correct.log import read_log

SLIDES = ("keys", "steps", "beside", "stroke", "seen", "answers")
PREVIEW, PART = "**/corrections/preview", "**/corrections/part*"
WORKED_OUT = "What would follow is being computed."


@pytest.fixture(scope="module")
def service(corrected_service):
    return corrected_service


def test_the_keyboard_alone_corrects(correct_page, service):
    page = correct_page("keys").page
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog").inner_text()
    assert "Name what is picked" in sheet
    assert "A tissue on or off" not in sheet, "these keys do something else now"
    page.keyboard.press("Escape")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    settled(page)
    page.keyboard.press("Enter")
    page.locator(".corrections .picked.over").wait_for(state="attached")
    assert page.locator(".cross").count() == 1
    name(page, "FOL")
    page.keyboard.press(".")
    until(lambda: page.locator(".correct-tools output").first.inner_text() == "× 1.2")
    until(lambda: page.get_by_role("button", name="Accept").is_enabled())
    page.keyboard.press("Enter")
    now = wait_for_version(service, service.slide, 1)
    assert now["steps"][0]["reach"] == pytest.approx(2**0.25)
    told(page, "Written. Hair follicle")
    assert "Written. Hair follicle" in page.locator("#says").inner_text()
    page.keyboard.press("z")
    wait_for_version(service, service.slide, 2)
    page.keyboard.press("Escape")
    page.locator(".stage.correcting").wait_for(state="detached")


def test_regions_are_stepped_through_and_followers_taken_out_without_a_mouse(correct_page, service, corrected_folder):
    page = correct_page("steps").page
    regions = [[each["x"], each["y"]] for each in to_review(service)["regions"]]
    page.keyboard.press("n")
    says(page, f"Region 1 of {len(regions)}: ")
    assert inside_drawn(page, ".picked.over", regions[0])
    page.keyboard.press("n")
    says(page, f"Region 2 of {len(regions)}: ")
    page.keyboard.press("p")
    says(page, f"Region 1 of {len(regions)}: ")
    name(page, "SCC")
    parts = preview(service, service.slide, regions[0], "SCC")["parts"]
    page.keyboard.press("n")
    says(page, f"Part 1 of {len(parts)} that would follow: ")
    page.keyboard.press("n")
    says(page, f"Part 2 of {len(parts)} that would follow: ")
    page.keyboard.press("Space")
    until(lambda: "1 part excluded." in page.locator(".follows").inner_text())
    page.keyboard.press(",")
    until(lambda: page.locator(".correct-tools output").first.inner_text() == "× 0.84")
    until(lambda: page.get_by_role("button", name="Accept").is_enabled())
    page.keyboard.press("Enter")
    wait_for_version(service, service.slide, 1)
    (step,) = read_log(corrected_folder / "out" / "steps").steps
    assert (len(step.places), len(step.left_out)) == (1, 1)
    page.keyboard.press("z")
    wait_for_version(service, service.slide, 2)
    page.keyboard.press("Z")
    wait_for_version(service, service.slide, 3)
    page.keyboard.press("n")
    says(page, f"Region 2 of {len(regions)}: ")


def test_named_regions_are_passed_over_and_several_are_picked_by_keyboard(correct_page, service):
    page = correct_page("beside").page
    first = to_review(service)["regions"][0]
    body = {"action": "name", "version": 0, "points": [[first["x"], first["y"]]], "tissue": "SCC", "spread": False}
    assert service.ask("POST", f"/v1/slides/{service.slide}/corrections", body)[0] == 201
    until(lambda: steps(page) == [[1, True]])
    page.keyboard.press("r")
    page.keyboard.press("n")
    says(page, "Region 2 of ")
    page.keyboard.press("N")
    says(page, "Region 3 of ")
    until(lambda: page.locator(".chosen").inner_text().startswith("2 regions, "))
    page.keyboard.press("r")
    page.keyboard.press("n")
    says(page, "Region 4 of ")
    before = drawn(page, ".picked.over")
    page.keyboard.press("Shift+ArrowRight")
    says(page, "Beside it: ")
    after = drawn(page, ".picked.over")
    assert min(x for x, _ in after) < max(x for x, _ in before) < max(x for x, _ in after)


def test_a_stroke_is_drawn_by_keyboard(correct_page, service):
    page = correct_page("stroke").page
    _, (x, y) = large_region(service, "BCC")
    page.keyboard.press("f")
    page.keyboard.press(correcting.KEYS["SCC"])
    page.evaluate(CENTRE, [x, y, service.json(f"/v1/slides/{service.slide}/tiles")["width"]])
    settled(page)
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    settled(page)
    page.keyboard.press("Space")
    page.keyboard.press("Enter")

    now = wait_for_version(service, service.slide, 1)
    assert now["steps"][0]["action"] == "draw"
    until(lambda: shows_in_the_middle(page, service, "SCC"))


def test_nothing_is_written_before_all_that_follows_is_shown(correct_page, service, corrected_folder):
    page = correct_page("seen").page
    seen = page.locator(".follows")
    page.keyboard.press("n")
    says(page, "Region 1 of ")
    page.route(PREVIEW, lambda route: route.fulfill(status=503, json={"error": {"what": "busy", "code": "busy"}}))
    page.keyboard.press(correcting.KEYS["SCC"])
    seen.filter(has_text="could not be computed").wait_for()
    page.keyboard.press("Enter")
    told(page, "Busy.")
    page.unroute(PREVIEW)
    page.keyboard.press("Enter")
    seen.filter(has_text="would follow, ").wait_for()

    release = hold(page, PREVIEW)
    page.keyboard.press(".")
    page.keyboard.press("Enter")
    told(page, WORKED_OUT)
    release()
    seen.filter(has_text="would follow, ").wait_for()

    page.keyboard.press("n")
    says(page, "Part 1 of ")
    release = hold(page, PART)
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    release()
    told(page, WORKED_OUT)
    seen.filter(has_text="1 part excluded.").wait_for()
    assert corrections(service, service.slide)["version"] == 0
    page.keyboard.press("Enter")
    wait_for_version(service, service.slide, 1)
    (step,) = read_log(corrected_folder / "out" / "seen").steps
    assert (step.reach, len(step.left_out)) == (pytest.approx(2**0.25), 1)


def test_what_was_written_is_written_though_its_answer_is_lost(correct_page, service):
    watched = correct_page("answers")
    watched.expected.append("ERR_FAILED")
    page = watched.page
    sent = []

    def lose(route):
        """The first request never comes, the answer to the second one is lost."""
        if route.request.method == "POST":
            sent.append(route.request.post_data_json)
            if len(sent) == 2:
                service.ask("POST", route.request.url.removeprefix(service.address), sent[1])
        if route.request.method == "POST" and len(sent) < 3:
            route.abort()
        else:
            route.continue_()

    page.keyboard.press("n")
    says(page, "Region 1 of ")
    name(page, "SCC")
    page.route("**/corrections", lose)
    page.keyboard.press("Enter")
    told(page, "The server does not answer: this is sent again until it does.")
    told(page, "Written. Squamous cell carcinoma")
    assert sent[0] == sent[1] == sent[2]
    assert steps(page) == [[1, True]]
    assert page.locator(".names [aria-pressed=true]").count() == 0
    page.keyboard.press("z")
    told(page, "Step 1 was undone.")
    assert steps(page) == [[1, False]]
    assert corrections(service, service.slide)["version"] == 2
