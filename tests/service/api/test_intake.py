import asyncio
import io
import os

import pytest
from bench.hostile import sparse_slide
from PIL import Image
from tests.helpers import wait_for
from tests.service.running import children_of
from tests.service.small import BEARER, NOTHING, error_of, files_in, serving, settings_of, slide_bytes, upload
from tests.slides import making

HOSTILE = [
    b"II*\x00" + bytes(100), b"not a slide", b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff" + bytes(range(256)),
    b"II*\x00\x08\x00\x00\x00\x01\x00\x00\x01\x04\x00\x01\x00\x00\x00\xff\xff\xff\x7f", b"<script>alert(1)</script>",
]  # fmt: skip


def readers():
    """Processes that read slides for this one."""
    return set(children_of(os.getpid(), "ntrm.slides.readers.reading_process"))


def test_what_is_no_slide_is_refused_and_leaves_neither_file_nor_process(tmp_path, model, random):
    before = readers()
    with serving(settings_of(tmp_path / "out", model)) as client:
        for content in (b"", *HOSTILE[:2]):
            answer = upload(client, content, name="a.svs")
            assert error_of(answer) == (422, "unreadable")
            assert files_in(client) == NOTHING
        assert client.get("/v1/slides").json() == {"slides": []}
        wait_for("no process to be left", lambda: readers() <= before)
        # And the next sound one is taken.
        assert upload(client, slide_bytes(random)).status_code == 202


@pytest.mark.usefixtures("quick_readers")
def test_what_takes_minutes_names_other_files_or_is_one_of_several_is_refused_and_not_kept(tmp_path, model, random):
    tissue, picture = Image.fromarray(making.tissue(random, 64, 96)), io.BytesIO()
    tissue.save(tmp_path / "private.jpg", restart_marker_rows=1)
    tissue.save(picture, "JPEG")
    up = "../" * len(tmp_path.parts) * 2
    naming = making.write_vms(tmp_path / "a.vms", f"{up}{tmp_path}/private.jpg").read_bytes()
    with serving(settings_of(tmp_path / "out", model, roots=(tmp_path,))) as client:
        answer = upload(client, sparse_slide(), name="a.tif")
        assert error_of(answer) == (422, "refused")
        assert "coarser levels" in answer.json()["error"]["hint"]
        for content in (*HOSTILE, naming):
            answer = upload(client, content, name="a.svs", mpp=0.5)
            assert error_of(answer) == (422, "unreadable")
        assert answer.json()["error"]["what"] == "cannot read the slide"
        for name in ("a.mrxs", "a.MRXS", "a.dcm"):
            answer = upload(client, picture.getvalue(), name=name, mpp=0.5)
            assert (answer.status_code, answer.json()["error"]["what"]) == (422, "a slide of several files")
        assert files_in(client) == NOTHING


def test_a_request_that_stops_is_given_up_and_leaves_nothing(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model, limits={"idle_seconds": 0.1})) as client:
        for kind in ("application/octet-stream", "application/json"):
            headers = {"host": "127.0.0.1", "content-type": kind, "authorization": BEARER["Authorization"]}
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            scope = {"type": "http", "method": "POST", "path": "/v1/slides", "query_string": b"", "headers": pairs}
            answers, parts = [], [{"type": "http.request", "body": b"x", "more_body": True}]

            async def receive_part(parts=parts):
                return parts.pop() if parts else await asyncio.sleep(3600)

            async def send(message, answers=answers):
                answers.append(message)

            asyncio.run(client.app(scope, receive_part, send))
            assert answers[0]["status"] == 408
            assert files_in(client) == NOTHING
