import json

from ntrm.service.api.app_state import Audit
from ntrm.service.core.settings import AUDIT


def lines_of(*paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


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
