"""Tables, figures and the page from runs that are done: nothing is trained here."""

import csv
import re
import shlex
from importlib.resources import files

import pytest
from lxml import html
from tests.helpers import write_section
from tests.paper.conftest import draw_section
from tests.paper.synthetic import write_all
from tests.report.pages import HOSTILE, cells, check_safe, words

from ntrm.core.progress import SILENT
from ntrm.paper.plan import Request
from ntrm.paper.reproduce import FIGURES, PHANTOM, REAL, TABLES, reproduce, write_results
from ntrm.training.recipe import parse_overrides

ARCHS = ("unet-resnet18", "ntrm-paper")
SMALL = {
    "overrides": parse_overrides(["steps=24", "batch=2", "window=64", "overlap=0", "augment=none"]),
    "options": {"width": 0.125},
    "seeds": (0,),
    "ablation": False,
}


@pytest.fixture
def request_of(tmp_path, monkeypatch, random):
    """Asks for the tables of ten sections of as many patients, eight of them in the test part, at two levels."""
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    for level, side in (("10x", 64), ("5x", 96)):
        for name in NAMES:
            write_section(tmp_path / "data", level, name, *draw_section(random, side, "BCC"))
    write_patients(tmp_path / "data", NAMES)
    return lambda **changes: Request(tmp_path / "data", tmp_path / "out", **{"archs": ARCHS, **SMALL, **changes})


NAMES = [f"BCC_{k}" for k in range(10)]


def write_patients(data, patients):
    rows = [",".join(row) for row in zip(NAMES, patients, ["train", "val", *["test"] * 8], strict=True)]
    (data / "cases.csv").write_text("\n".join(["name,group,split", *rows]) + "\n")


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_tables_follow_the_dataset_and_the_request_though_nothing_is_trained_again(request_of, tmp_path, random):
    """Claims hold over eight patients; then these turn out to be two; then less is asked for."""
    request, tables = request_of(resolutions=("10x",)), tmp_path / "out" / "tables"
    request.check_folder()
    skill = {"unet-resnet18": 0.5, "ntrm-control": 0.5, "ntrm-paper": 0.9}
    options = {"sections": 8, "accuracy": lambda job: skill[job.variant.arch], "names": NAMES[2:]}
    write_all(tmp_path / "out" / "runs", request.plan(), random, **options)
    assert reproduce(request, device="cpu").ran == 0
    (tables / "notes.csv").write_text("mine")
    assert {row["claim"]: row["verdict"] for row in read_csv(tables / "claims.csv")}["the highest mean IoU"] == "held"
    write_patients(tmp_path / "data", ["A", "B", *"CCCCDDDD"])
    full = reproduce(request_of(resolutions=("10x",)), device="cpu")
    assert full.ran == 0
    assert {row["verdict"] for row in read_csv(tables / "claims.csv")} <= {"not established", "left out"}
    (tmp_path / "out" / "figures" / "ablation.png").write_bytes(b"of an earlier request")
    small = reproduce(request_of(resolutions=("10x",), archs=ARCHS[:1]), device="cpu")
    assert {*tables.iterdir()} == {*small.tables, tables / "notes.csv"} < {*full.tables, tables / "notes.csv"}
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"dataset", "learning"}


@pytest.mark.usefixtures("few_draws")
def test_the_page_is_whole_safe_and_needs_nothing_beside_it(request_of, tmp_path, random):
    from ntrm.paper.outcomes import PlanResults

    request = request_of(ablation=True)
    plan = request.plan()
    failed = plan.job(plan.systems[0], 0)
    write_all(tmp_path / "out" / "runs", plan, random, sections=8, skip={failed.key}, names=NAMES[2:])
    lost = {failed.key: f"exit code 1\n{HOSTILE}"}
    results = PlanResults.read(plan, request.run, lost, request.patients)
    command = ["ntrm", "reproduce", "--out", f"a b {HOSTILE}"]
    path, tables = write_results(request, results, "cpu", command, 1, SILENT)
    text = path.read_text(encoding="utf-8")
    page = html.fromstring(text)
    assert all(source.startswith("data:image/png;base64") for source in page.xpath("//@src"))
    drawn = {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert (len(page.xpath("//img")), drawn) == (3, {"dataset", "learning", "ablation"})
    assert {path.stem for path in tables} == {*TABLES} - {"table1_scratch", "complexity_stages"}
    # Nothing was drawn from a network here, so that section is left out instead of standing empty.
    titles = ["What was run", "The systems compared", "Resolutions", "Tissue by tissue", "Claims", "Ablation"]
    assert [title.text for title in page.iter("h2")] == [*titles, "Complexity", "The dataset", "Runs"]
    assert page.xpath("//p[@class='lead']")[0].text == REAL != PHANTOM
    safe = check_safe(text)
    assert shlex.join(command) in safe.texts
    assert cells(text, failed.label) == [["failed", f"exit code 1 {HOSTILE}"]]
    assert all(len(words(each)) > 32 for each in page.find_class("words"))
    assert page.xpath("//th[text()='paper: Dice' and @class='n']")
    said = words(page.find("body"))
    assert "−" in said
    assert not re.findall(r"(?:^|[\s(])-[0-9][^\s]*", said.replace(shlex.join(command), ""))


def test_the_names_of_all_tables_and_figures_are_known():
    page = (files("ntrm.report") / "templates" / "reproduction.html").read_text(encoding="utf-8")
    shown = {name for group in re.findall(r"section\((.*)\)", page) for name in re.findall(r'"([a-z0-9_]+)"', group)}
    assert shown == {*TABLES, *FIGURES}
