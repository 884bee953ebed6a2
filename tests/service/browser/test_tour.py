"""A short tour of the page: in by a link, the list, a slide, the keyboard, a narrow window, a file that is no slide."""

import re

from tests.service.browser.conftest import patient, settled
from tests.service.browser.driving import drop, until
from tests.service.browser.looking import PANE


def test_a_link_lets_one_browser_in_once(browser, service, tmp_path):
    link = service.new_link()
    first, second = (patient(browser.new_context()) for _ in range(2))
    # As the command opens it: from a page that is not the service's.
    leading = tmp_path / "open.html"
    leading.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">')

    welcome = first.new_page()
    welcome.goto(leading.as_uri())
    welcome.wait_for_selector(".row .name")
    refused = second.new_page()
    answer = refused.goto(link)

    assert welcome.url == f"{service.address}/"
    assert answer.status == 401
    assert "locked" in refused.locator("h1").inner_text()
    assert refused.locator("main img").evaluate("image => image.naturalWidth") > 0
    assert {cookie["httpOnly"] for cookie in first.cookies()} == {True}
    first.close()
    second.close()


def test_the_keyboard_alone_suffices(open_page, service):
    page = open_page().page
    page.locator(".row .name").first.wait_for()

    page.keyboard.press("?")
    assert "Next slide" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("two")
    page.keyboard.press("Tab")
    for _ in range(12):
        if page.evaluate("() => document.activeElement.matches('.name')"):
            break
        page.keyboard.press("Tab")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    page.wait_for_selector(".legend li")
    settled(page)
    scale = page.locator(".hud.scale").inner_text()
    page.keyboard.press("+")
    until(lambda: page.locator(".hud.scale").inner_text() != scale)
    page.locator(PANE).focus()
    page.keyboard.press("0")
    settled(page)
    page.keyboard.press("Enter")
    page.locator("#panel-region").filter(has_text=re.compile("Area|segmented|measured")).wait_for()
    page.keyboard.press("g")
    assert page.evaluate("() => document.activeElement.dataset.tab") == "relations"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.matches('[data-node]')"):
            break
    page.keyboard.press("Enter")
    page.locator(".reading h3").wait_for()
    assert page.evaluate("() => document.activeElement.matches('[data-node]')")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector(".row .name")


def test_a_narrow_window_shows_everything(slide_page, open_page):
    page = slide_page(width=360, height=640).page
    inside = "() => document.documentElement.scrollWidth <= innerWidth"

    assert page.evaluate(inside)
    for tab in ("Relations", "Measures", "Region", "Correct", "Tissues"):
        page.get_by_role("tab", name=tab).click()
        assert page.locator(f"#panel-{tab.lower()}").is_visible()
        assert page.evaluate(
            "id => { const body = document.getElementById(id); return body.scrollWidth <= body.clientWidth; }",
            f"panel-{tab.lower()}",
        )
    assert page.locator(PANE).bounding_box()["height"] >= 180
    assert any(notice.is_visible() for notice in page.get_by_text("Research use only").all())
    listed = open_page(width=360, height=640).page
    listed.locator(".row .name").first.wait_for()
    assert listed.evaluate(inside)


def test_a_file_that_is_no_slide_is_refused_with_the_reason(open_page, tmp_path):
    watched = open_page()
    page = watched.page
    watched.expected.append("status of 422")
    page.locator(".row .name").first.wait_for()
    hostile = '<img src=x onerror="document.title=1">.svs'
    (tmp_path / "no.svs").write_bytes(b"no slide at all")

    drop(page, tmp_path / "no.svs", hostile)
    row = page.locator('.row[data-state="failed"]')
    row.wait_for()

    assert hostile in row.inner_text()
    assert "cannot read" in row.inner_text()
    assert row.locator("img").count() == 0
    assert page.title() == "NTRM"
    row.get_by_role("button", name="Forget").click()
    row.wait_for(state="detached")
