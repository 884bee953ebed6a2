import asyncio
import io

import pytest
from bench.hostile import sparse_slide
from PIL import Image
from tests.service.small import BEARER, NOTHING, error_of, files_in, serving, settings_of, slide_bytes, upload
from tests.slides import making

HOSTILE = [  # one process each
    b"not a slide", b"", b"II*\x00" + bytes(100), b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff" + bytes(range(256)),
    b"II*\x00\x08\x00\x00\x00\x01\x00\x00\x01\x04\x00\x01\x00\x00\x00\xff\xff\xff\x7f", b"<script>alert(1)</script>",
]  # fmt: skip


def test_what_is_no_slide_is_refused_by_its_content_and_not_kept(tmp_path, model, random):
    with serving(settings_of(tmp_path / "out", model)) as client:
        for content in HOSTILE:
            answer = upload(client, content, name="a.svs")
            assert error_of(answer) == (422, "unreadable")
            assert files_in(client) == NOTHING
        assert client.get("/v1/slides").json() == {"slides": []}
        # And the next sound one is taken.
        assert upload(client, slide_bytes(random)).status_code == 202


def test_a_slide_that_would_take_minutes_for_nothing_is_refused_and_not_kept(tmp_path, model, quick_readers):
    with serving(settings_of(tmp_path / "out", model)) as client:
        answer = upload(client, sparse_slide(), name="a.tif")
        assert error_of(answer) == (422, "refused")
        assert "coarser levels" in answer.json()["error"]["hint"]
        assert files_in(client) == NOTHING


@pytest.mark.usefixtures("quick_readers")
def test_an_upload_that_names_another_file_shows_nothing_of_it(tmp_path, model, random):
    Image.fromarray(making.tissue(random, 64, 96)).save(tmp_path / "private.jpg", restart_marker_rows=1)
    with serving(settings_of(tmp_path / "out", model, roots=(tmp_path,))) as client:
        up = "../" * len(tmp_path.parts) * 2
        naming = making.write_vms(tmp_path / "a.vms", f"{up}{tmp_path}/private.jpg").read_bytes()
        answer = upload(client, naming, name="a.svs", mpp=0.5)
        assert (answer.status_code, answer.json()["error"]["what"]) == (422, "cannot read the slide")
        assert files_in(client) == NOTHING


@pytest.mark.usefixtures("quick_readers")
def test_one_file_of_several_is_refused_by_its_name_though_it_is_a_picture(tmp_path, model, random):
    picture = io.BytesIO()
    Image.fromarray(making.tissue(random, 64, 96)).save(picture, "JPEG")
    with serving(settings_of(tmp_path / "out", model)) as client:
        for name in ("a.mrxs", "a.MRXS", "a.dcm"):
            answer = upload(client, picture.getvalue(), name=name, mpp=0.5)
            assert (answer.status_code, answer.json()["error"]["what"]) == (422, "a slide of several files")
            assert files_in(client) == NOTHING


def test_a_request_that_stops_is_given_up_and_leaves_nothing(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model, limits={"idle_seconds": 1})) as client:
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
