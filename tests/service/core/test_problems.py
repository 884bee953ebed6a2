from pathlib import Path

import pytest
from tests.service.small import serving, settings_of

from ntrm.core.errors import DataError, RefusedError
from ntrm.service.core.problems import document_of, missing, without_paths
from ntrm.service.jobs.slide_record import Slide, new_id

pytestmark = pytest.mark.usefixtures("quick_readers")

TEXTS = [
    ("cannot read /srv/a b/c/done.json", "cannot read …"),
    ("/srv/out holds results of another run", "… holds results of another run"),
    ("[Errno 2] No such file: '/srv/Jane Doe.svs'", "[Errno 2] No such file: …"),
    ("0.5 µm/px, 1/4, application/json, TIFF/EP", "0.5 µm/px, 1/4, application/json, TIFF/EP"),
    ("ask /v1/slides; see https://example.org/a/b", "ask /v1/slides; see https://example.org/a/b"),
    ("in:/srv/x, then", "in:…, then"),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS, ids=range(len(TEXTS)))
def test_paths_of_the_server_are_left_out_and_nothing_else_is(text, shown):
    assert without_paths(text) == shown


def test_no_field_of_an_error_tells_a_path():
    cause = PermissionError(13, "Permission denied", "/srv/x")
    error = RefusedError("cannot use /srv/x", got=cause, expected=Path("/srv/y"), hint="chmod 600 /srv/x")
    assert "/srv" not in str(document_of(error))
    assert document_of(DataError("a", got=cause))["error"]["got"] == "Permission denied"
    assert document_of(missing("a", "b"))["error"]["hint"] == "b"


def test_damaged_results_are_answered_without_a_path(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model)) as client:
        results = tmp_path / "out" / "a"
        (results / ".ntrm").mkdir(parents=True)
        (results / "summary.json").write_text("{}")
        slide = client.app_state.store.add(Slide(new_id(), "a", "a", "found", None, None, "done", 0.0))
        for content in (b"{", b"[]", b"\xff"):
            (results / ".ntrm" / "done.json").write_bytes(content)
            answer = client.get(f"/v1/slides/{slide.id}/regions/1")
            assert answer.status_code == 422
            assert str(tmp_path) not in answer.text
