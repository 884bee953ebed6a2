"""A results folder from a stranger: nothing is lost, nothing is shown, nothing is run, and nobody waits."""

import os
import sys
from contextlib import nullcontext, suppress

import pytest
from tests.evaluation.small import NAMES
from tests.helpers import memory_below
from tests.segment.small import ByColour
from tests.service.correcting import EPI, click, middle_of
from tests.service.planted import BOMBS, PLANTS, SECRET, nobody_waits
from tests.service.small import serving, settings_of

from ntrm.core.errors import DataError, NtrmError
from ntrm.correct.folder import FolderCorrections
from ntrm.report.slide_overview import remake_reports
from ntrm.results.paths import RUN
from ntrm.results.tables import read_results
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options

pytestmark = pytest.mark.usefixtures("quick_readers")
MOST_MB = 350
FILES = ("summary", "graph", "regions.geojson", "mask", "report", "overlay.png")
ASKED = (
    "", *(f"/{name}" for name in FILES), "/familiarity.jpg", "/thumbnail.jpg", "/at?x=50&y=50", "/regions/1", "/tiles",
    *(f"/tiles/{layer}/7/0_0.png" for layer in ("tissue", "coarse", "confidence", "improvement", "corrected")),
    "/corrections", "/corrections/regions", "/corrections/part?x=50&y=50&whole_region=true",
    *(f"/corrected/{name}" for name in FILES), "/at?x=50&y=50&v=1",
)  # fmt: skip


@pytest.fixture
def secret(tmp_path):
    """A file that is none of the results, in a folder of its own."""
    path = tmp_path / "home" / "secret"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def gs(tmp_path, monkeypatch):
    """What Pillow would start for PostScript: says whether it was."""
    program, started = tmp_path / "bin" / "gs", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nopen({str(started)!r}, 'w')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return started


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


@pytest.fixture(params=[*PLANTS, *BOMBS])
def planted(request, tmp_path, shown, secret, gs):
    """The folder of results, once it was shown, with something put into it; checked when the test is over."""
    (PLANTS | BOMBS)[request.param](shown / "a", secret)
    before = names_in(secret.parent)
    with nobody_waits(tmp_path), memory_below(MOST_MB) if request.param in BOMBS else nullcontext():
        yield shown
    assert secret.read_bytes() == SECRET
    # Of a folder of the slide that was moved away and linked to, nothing is touched either.
    assert names_in(secret.parent) == before
    assert not gs.exists()
    files = [path for path in shown.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if SECRET in path.read_bytes()]


def test_the_service_shows_a_planted_folder(planted, results, model):
    path, mask = results
    settings = settings_of(planted, model, roots=(path.parent,))
    if (planted / RUN).is_symlink() or not (planted / RUN).is_file():
        with pytest.raises(DataError, match=f"cannot read .*{RUN}"), serving(settings):
            pass
        return
    with serving(settings) as client:
        for slide in client.get("/v1/slides").json()["slides"]:
            url = f"/v1/slides/{slide['id']}"
            body = click(middle_of(mask, EPI), whole_regions=True)
            answers = [*(client.get(url + asked) for asked in ASKED), client.post(f"{url}/corrections", json=body)]
            answers += [client.get(f"{url}/corrections"), client.post(f"{url}/retry"), client.delete(url)]
            assert [answer.url for answer in answers if answer.status_code >= 500] == []
            assert [answer.url for answer in answers if SECRET in answer.content] == []


def attempt(work):
    """What a command does; an error of ours, which it tells in a line, is as good as an answer."""
    with suppress(NtrmError):
        work()


def test_commands_read_a_planted_folder(planted, results):
    path, mask = results
    x, y = middle_of(mask, EPI)
    attempt(lambda: read_results(planted))
    attempt(lambda: remake_reports(planted))
    attempt(lambda: FolderCorrections(planted).click("a", int(x), int(y), NAMES[EPI], spread=False, whole_regions=True))
    options = Options(maps=True, tissue_mask=False)
    attempt(lambda: segment_slides(path, out=planted, model=ByColour(), device="cpu", batch=2, options=options))
