import json
import re

import pytest
from tests.service.small import serving, settings_of

from ntrm.service.core.audit import Audit
from ntrm.service.core.settings import AUDIT

pytestmark = pytest.mark.usefixtures("quick_readers")


def lines_of(*paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_openings_that_are_refused_are_counted_and_not_written_one_by_one(tmp_path, model):
    settings = settings_of(tmp_path / "out", model)
    with serving(settings, authorised=False) as client:
        for _ in range(50):
            assert client.get("/open/x").status_code == 303
    outcomes = [line["outcome"] for line in lines_of(settings.hidden / AUDIT) if line["action"] == "open"]
    # One a minute, and one at the end.
    assert len(outcomes) < 10
    assert sum(int((re.findall("[0-9]+", text) or ["1"])[0]) for text in outcomes) == 50


def test_a_full_log_is_moved_on_and_the_oldest_lines_go(tmp_path, monkeypatch):
    audit = Audit(tmp_path / AUDIT)
    monkeypatch.setattr(audit, "maxBytes", 200)
    for number in range(50):
        audit.note("link", str(number))
    audit.close()
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == [AUDIT, *(f"{AUDIT}.{number}" for number in range(1, 10))]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert lines_of(tmp_path / AUDIT)[-1]["slide"] == "49"


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path):
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / AUDIT).symlink_to("other")
    Audit(tmp_path / AUDIT).note("start")
    assert (tmp_path / "other").read_text() == "somebody's"
