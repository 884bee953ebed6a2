"""The list of slides, as a person uses it: come in, search, add, lose the server."""

import re
from datetime import UTC, datetime

import numpy as np
import pytest
from tests.service.browser.driving import call, drop, write_slide
from tests.service.browser.looking import rgb


def test_the_list_tells_what_was_found_and_can_be_searched(open_page, service):
    page = open_page().page
    row = page.locator(f'.row[data-id="{service.slide}"]')
    row.locator("img").wait_for()
    document = service.json(f"/v1/slides/{service.slide}")

    assert "two" in row.inner_text()
    assert "2 pieces" in row.inner_text()
    assert ("no quality warnings" in row.inner_text()) == (document["quality_warnings"] == [])
    assert [chip.split()[0] for chip in row.locator(".chip").all_inner_texts()] == [
        cancer["name"] for cancer in document["cancers"] if cancer["present"]
    ]
    widths = row.locator(".tissue-bar span").evaluate_all(
        "parts => parts.map((part) => part.getBoundingClientRect().width)"
    )
    fractions = [tissue["share"] for tissue in document["tissue"] if tissue["share"] > 0]
    large = np.array(fractions) > 0.05
    assert np.allclose(np.array(widths)[large] / sum(widths), np.array(fractions)[large], atol=0.02)
    page.get_by_role("searchbox").fill("no such slide")
    page.get_by_text("No slide matches the search").wait_for()
    assert row.count() == 0
    page.get_by_role("searchbox").fill("bcc")
    row.wait_for()


def test_the_list_is_sorted_as_asked(open_page, service):
    about = {  # name: (seconds since newest, mm², cancer, status)
        "case 10": (0, 2.0, "SCC", "done"),
        "case 9": (50, 9.0, None, "failed"),
        "a case": (20, 0.5, "BCC", "done"),
        "Zebra": (10, 4.0, "BCC", "cancelled"),
    }
    document = service.json("/v1/slides")
    first, slides = document["slides"][0], []
    for number, (name, (age, area, cancer, status)) in enumerate(about.items()):
        cancers = [{"name": cancer, "present": True, "confidence": 1.0}] if cancer else []
        fields = {"name": name, "tissue_area_mm2": area, "status": status, "cancers": cancers}
        created = datetime.fromtimestamp(1.8e9 - age, UTC).isoformat()
        slides.append({**first, "id": f"{number:032x}", "created": created, **fields})
    watched = open_page("/healthz")
    watched.expected += ["thumbnail", "favicon"]  # there are none of these slides, and none of a document
    page, answer = watched.page, {**document, "slides": slides}
    page.route("**/v1/slides", lambda route: route.fulfill(json=answer))
    page.goto(service.address)
    page.locator(".row", has_text="Zebra").wait_for()

    def order(label):
        page.get_by_label("Sort by").select_option(label=label)
        return page.locator(".rows .row .name").all_inner_texts()

    assert order("Most tissue") == ["case 9", "Zebra", "case 10", "a case"]
    assert order("Newest first") == ["case 10", "Zebra", "a case", "case 9"]
    assert order("Name") == ["a case", "case 9", "case 10", "Zebra"]
    assert order("Cancer type") == ["a case", "Zebra", "case 10", "case 9"]
    assert order("Status") == ["case 9", "Zebra", "a case", "case 10"]


def test_a_dropped_slide_is_segmented_over_a_reload(open_page, service, tmp_path):
    watched = open_page()
    page = watched.page
    watched.expected.append("status of 422")
    drop(page, write_slide(tmp_path / "unmeasured.tif", mpp=None, copies=1))
    page.get_by_role("dialog").wait_for()
    page.get_by_label("µm per pixel").fill("three")
    page.get_by_role("button", name="Segment").click()
    page.get_by_text("Please enter a number above 0").wait_for()
    page.get_by_label("µm per pixel").fill("3,35")
    page.keyboard.press("Enter")
    row = page.locator(".row", has_text="unmeasured")
    row.locator(".progress").wait_for()

    page.reload()
    page.locator('.row[data-status="done"]', has_text="unmeasured").wait_for()

    row.get_by_role("button", name="Delete unmeasured").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    row.wait_for(state="detached")
    assert "unmeasured" not in {slide["name"] for slide in service.json("/v1/slides")["slides"]}


def test_an_address_of_no_slide_is_told_plainly(open_page):
    watched = open_page()
    watched.expected += ["status of 422", "status of 404"]
    for wrong in ("SCC_1", "0" * 24):
        watched.page.evaluate("hash => { location.hash = hash }", f"#/slide/{wrong}")
        watched.page.get_by_text("There is no such slide").wait_for()
        assert watched.page.locator(".row").count() == 0
        watched.page.locator("a.button", has_text="All slides").click()
        watched.page.locator(".row .name").first.wait_for()
        assert watched.page.get_by_text("There is no such slide").count() == 0


def test_a_server_that_is_gone_is_told_and_found_again(slide_page, open_page):
    watched = slide_page()
    page = watched.page
    watched.expected.append("net::ERR_FAILED")
    page.route("**/v1/**", lambda route: route.abort())
    page.get_by_role("link", name="All slides").click()

    page.get_by_text("The server does not answer.").first.wait_for()
    page.get_by_text("The slides cannot be listed").wait_for()
    page.unroute("**/v1/**")
    page.locator(".row .name").first.wait_for()
    page.locator("#connection").wait_for(state="hidden")
    assert page.get_by_text("The slides cannot be listed").count() == 0


def test_small_sums_of_the_page(open_page, random):
    page = open_page().page
    for um, longest in zip(10 ** random.uniform(-2, 3, 20), random.integers(60, 300, 20).tolist(), strict=True):
        bar = call(page, "geometry.js", "scaleBar", float(um), longest)
        value, unit = bar["label"].split()
        length = float(value) * {"µm": 1, "mm": 1000}[unit]
        assert bar["pixels"] <= longest * (1 + 1e-9)
        assert bar["pixels"] * um == pytest.approx(length, rel=1e-6)
        assert re.fullmatch(r"0*[125]0*", value.replace(".", "")), "a round number"
        assert bar["pixels"] > longest / 2.5 * (1 - 1e-9)
    assert call(page, "geometry.js", "magnification", 0.25) == "40×"
    for value, text in ((0, "0.00 mm"), (0.0268, "27 µm"), (0.27, "0.27 mm"), (12.34, "12.3 mm")):
        assert call(page, "format.js", "length", value) == text
    for value, text in ((0.9813, "0.98"), (0.995, ">0.99"), (0.99999, ">0.99"), (1, "1.00"), (None, "–")):
        assert call(page, "format.js", "confidence", value) == text
    for text, mpp in (("0,25", 0.25), (" 0.5 ", 0.5), ("", None), ("x", None), ("-1", None), ("0", None)):
        assert call(page, "dialogs.js", "readMpp", text) == mpp


def test_what_the_server_says_about_itself_is_shown(open_page, service):
    watched = open_page("/healthz")
    watched.expected.append("favicon")  # a document has none
    page = watched.page
    about, asked = service.json("/v1/about"), []
    refusal = {"what": "the model cannot be loaded", "got": "nothing", "expected": None, "hint": "name another"}

    def answer(route):
        asked.append(1)
        early = {"classes": [], "model": None, "worker": "starting"}
        late = {"worker": "refused", "worker_error": {**refusal, "code": "refused"}}
        route.fulfill(json={**about, **(early if len(asked) == 1 else late)})

    page.route("**/v1/about", answer)
    page.goto(service.address)
    row = page.locator(f'.row[data-id="{service.slide}"]')
    row.wait_for()

    page.get_by_text("the model cannot be loaded; got nothing. Name another.").wait_for()
    dot = row.locator(".chip .dot").first.evaluate("dot => getComputedStyle(dot).backgroundColor")
    bcc = next(tissue for tissue in about["classes"] if tissue["name"] == "BCC")
    assert [int(part) for part in re.findall(r"\d+", dot)[:3]] == rgb(bcc["colour"]).tolist()
    assert "synthetic sections only" in page.locator(".notices").inner_text()
