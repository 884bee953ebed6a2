import shutil

import pytest
from tests.report.test_cohort import rewrite

from ntrm.core.errors import DataError
from ntrm.report.slide_reports import remake_reports


def pages(out):
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.html"))}


def test_all_pages_are_made_again(results):
    first = remake_reports(results)
    before = pages(results)
    assert set(before) == {"index.html", "one/report.html", "two/report.html"}
    for path in results.rglob("*.html"):
        path.unlink()
    assert remake_reports(results) == first
    assert pages(results) == before
    assert first.reported == ("one", "two")
    assert first.without == ("broken",)


def test_a_slide_that_cannot_be_reported_does_not_stop_the_others(results):
    (results / "one" / "summary.json").write_text("{")
    (results / "one" / "report.html").unlink(missing_ok=True)
    found = remake_reports(results)
    ((name, reason),) = found.failures
    assert name == "one"
    assert "cannot read summary.json" in reason
    assert "run the same ntrm segment again" in reason
    assert found.reported == ("two",)
    assert found.as_dict()["failures"] == [{"slide_id": "one", "reason": reason}]
    assert "one/report.html" not in (results / "index.html").read_text()


def test_several_processes_make_the_same_pages(results):
    names = [f"s{k:02d}" for k in range(16)]
    for name in names:
        shutil.copytree(results / "one", results / name)

    def more(rows):
        like = next(row for row in rows if row["slide_id"] == "one")
        rows += [{**like, "slide_id": name} for name in names]

    rewrite(results / "slides.csv", more)
    alone = remake_reports(results)
    before = pages(results)
    assert remake_reports(results, jobs=2) == alone
    assert pages(results) == before
    assert len(alone.reported) == 18


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="holds no results"):
        remake_reports(tmp_path)
