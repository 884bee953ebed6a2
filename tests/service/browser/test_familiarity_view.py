"""Slides that are unlike what the model knows, as a person meets them."""

import pytest
from tests.segment.judged import KNOWN, SMALL, STRANGE, WHY, judge_as
from tests.service.browser.conftest import settled
from tests.service.browser.driving import until, write_slide
from tests.service.browser.looking import home_place, large_region
from tests.service.running import Running

from ntrm.report.overlay import STEPS
from ntrm.segment.batch import segment_slides

WINDOWS = [(0, 0, 256, 256, 0.001), (192, 192, 256, 256, 0.4)]
JUDGED = {"strange": (STRANGE, None, WINDOWS), "piece": (KNOWN, {1: KNOWN, 2: STRANGE}, ()), "small": (SMALL, None, ())}


@pytest.fixture(scope="module")
def service(chromium, tmp_path_factory):
    """One section under three names: unfamiliar, with an unfamiliar piece, too small to judge."""
    assert chromium
    folder = tmp_path_factory.mktemp("judged")
    (folder / "root").mkdir()
    for name, judged in JUDGED.items():
        path = write_slide(folder / "root" / f"{name}.tif")
        with pytest.MonkeyPatch.context() as patch:
            judge_as(patch, *judged)
            assert segment_slides(path, out=folder / "out", device="cpu").exit_code == 0
    with Running(folder / "out", "bundled", "--root", str(folder / "root")) as running:
        until(lambda: all(slide["has_image"] for slide in running.json("/v1/slides")["slides"]))
        running.ids = {slide["slide_id"]: slide["id"] for slide in running.json("/v1/slides")["slides"]}
        yield running


@pytest.fixture
def slide_named(slide_page, service):
    def open_slide(name):
        service.slide = service.ids[name]
        return slide_page().page

    return open_slide


def test_the_list_says_what_is_unlike_and_finds_it(open_page, service):
    page = open_page().page
    row, piece, small = (page.locator(f'.row[data-id="{service.ids[name]}"]') for name in JUDGED)
    row.locator(".chip.unlike").wait_for()

    assert row.locator(".chip").all_inner_texts() == ["Unlike what the model knows", "Cancers not assessed"]
    assert WHY in row.locator(".chip.unlike").get_attribute("title")
    assert piece.locator(".chip").all_inner_texts()[0] == "Piece 2 unlike what the model knows"
    assert "BCC" in piece.inner_text()
    assert small.locator(".chip.unlike").count() == 0
    page.get_by_role("searchbox").fill("not assessed")
    until(lambda: page.locator(".row").count() == 1)


def test_the_slide_says_why_and_where_it_is_unlike_and_finds_no_tumour(slide_named, service):
    page = slide_named("strange")
    banner = page.get_by_role("region", name="Familiarity")
    assert "This slide is unlike what the model knows (p = 0.002)." in banner.inner_text()
    assert banner.locator("li").all_inner_texts() == list(STRANGE.reasons)
    assert page.locator(".slide-bar .chip").all_inner_texts() == ["Cancers not assessed"]
    assert banner.locator("img").get_attribute("src") is None
    banner.get_by_text("Show where").click()
    page.wait_for_function("() => document.querySelector('.unlike-banner img').naturalWidth > 0")
    said = banner.locator("figcaption > span").all_inner_texts()
    assert [text.strip() for text in said] == [words for _, _, words in STEPS]
    colours = banner.locator("figcaption .dot").evaluate_all("dots => dots.map((dot) => dot.style.background)")
    assert colours == [f"rgb({', '.join(map(str, colour))})" for _, colour, _ in STEPS]
    banner.get_by_text("Show where").click()

    page.get_by_role("tab", name="Measures").click()
    assert page.locator("line.measure").count() == 0
    for name in ("deep_clearance", "lateral_clearance", "invasion_depth"):
        for row in page.locator(f'[data-measure="{name}"]').all():
            assert "Not assessed: unlike what the model knows" in row.inner_text()
    settled(page)
    _, (x, y) = large_region(service, "BCC")
    page.mouse.click(*home_place(page, service, x, y))
    page.locator("#panel-region dl").wait_for()
    assert "not a finding" in page.locator("#panel-region .unread").inner_text()


def test_an_unfamiliar_piece_is_named_and_a_slide_that_was_not_judged_says_so_in_small_print(slide_named):
    page = slide_named("piece")
    assert "Piece 2 is unlike what the model knows" in page.get_by_role("region", name="Familiarity").inner_text()
    page.get_by_role("tab", name="Measures").click()
    first, second = page.locator('[data-measure="invasion_depth"]').all_inner_texts()
    assert ("Not assessed" in first, "Not assessed" in second) == (False, True)

    page = slide_named("small")
    assert page.get_by_role("region", name="Familiarity").count() == 0
    assert f"too small to judge ({SMALL.reasons[0]})" in page.locator(".panel-foot .familiarity").inner_text()
