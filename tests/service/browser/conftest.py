import pytest
from tests.helpers import PATIENCE
from tests.service.browser import correcting
from tests.service.browser.driving import Watched, find_chromium, until, write_results, write_slide
from tests.service.browser.looking import set_opacity
from tests.service.running import Running

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="session")
def chromium():
    """Where Debian's Chromium lies; the tests are skipped where it or Playwright is missing."""
    for module in ("playwright.sync_api", "fastapi", "uvicorn"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium was found: install it, or name it in NTRM_CHROMIUM")
    return found


@pytest.fixture(scope="module")
def browser(chromium):
    """Driven by Playwright, whose event loop runs in this thread: gone before tests of other modules begin."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS, timeout=PATIENCE * 1000)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def service(chromium, tmp_path_factory):
    """With the slide ``service.slide``, and with ``service.lost``: the same without its file, with a ground truth."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "root").mkdir()
    path = write_slide(folder / "root" / "two.tif")
    write_results(path, folder / "out")
    with Running(folder / "out", "bundled", "--root", str(folder / "root")) as running:
        running.path = path
        until(lambda: any(slide["has_image"] for slide in running.json("/v1/slides")["slides"]))
        ids = {slide["slide_id"]: slide["id"] for slide in running.json("/v1/slides")["slides"]}
        running.slide, running.lost = ids["two"], ids["lost"]
        yield running


def patient(context):
    """Playwright's own limits are too short for a busy machine."""
    context.set_default_timeout(PATIENCE * 1000)
    return context


@pytest.fixture(scope="module")
def cookies(browser, service):
    """What a browser keeps after it has used the link."""
    context = patient(browser.new_context())
    context.new_page().goto(service.new_link())
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def open_page(browser, service, cookies):
    """Opens signed-in pages; fails afterwards on any fault that was not expected."""
    opened = []

    def open_one(path="/", *, width=1280, height=820, **more):
        size = {"width": width, "height": height}
        context = patient(browser.new_context(viewport=size, storage_state=cookies, **more))
        watched = Watched(context.new_page(), service.address)
        opened.append(watched)
        watched.page.goto(service.address + path)
        return watched

    yield open_one
    faults = [fault for watched in opened for fault in watched.unexpected()]
    for watched in opened:
        watched.page.context.close()
    assert faults == []


@pytest.fixture
def slide_page(open_page, service):
    """The slide, opened and drawn."""

    def open_slide(**more):
        watched = open_page(f"/#/slide/{service.slide}", **more)
        watched.page.wait_for_selector(".legend li")
        settled(watched.page)
        return watched

    return open_slide


@pytest.fixture(scope="module")
def corrected_folder(request, chromium, tmp_path_factory):
    """Slides to be corrected, as the module's ``SLIDES`` names them."""
    assert chromium
    folder = tmp_path_factory.mktemp("corrected")
    correcting.write_slides(folder, request.module.SLIDES)
    return folder


@pytest.fixture(scope="module")
def corrected_service(corrected_folder):
    """``service.slide`` is the one that the test corrects."""
    with correcting.serve(corrected_folder) as running:
        running.ids = correcting.find_slides(running)
        yield running


@pytest.fixture
def correct_page(open_page, service):
    """A slide under opaque tissues, with the mode on."""

    def open_slide(slide, **more):
        service.slide = service.ids[slide]
        watched = open_page(f"/#/slide/{service.slide}", **more)
        prepare(watched.page)
        return watched

    return open_slide


def prepare(page):
    """Opaque tissues, and the mode on."""
    page.wait_for_selector(".legend li")
    set_opacity(page, 100)
    correcting.begin(page)
    settled(page)


SETTLED = """() => [...document.querySelectorAll(".pane:not([hidden])")].every((pane) => {
  const viewer = window.OpenSeadragon.getViewer(pane);
  if (!viewer || !viewer.world.getItemCount()) return false;
  const items = Array.from({ length: viewer.world.getItemCount() }, (_, index) => viewer.world.getItemAt(index));
  const still = viewer.viewport.zoomSpring.isAtTargetValue() && viewer.viewport.degreesSpring.isAtTargetValue();
  return still && items.every((item) => item.getFullyLoaded());
})"""


def settled(page):
    """Wait until all tiles are there and nothing moves."""
    page.wait_for_function(SETTLED)
    page.wait_for_function(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )
