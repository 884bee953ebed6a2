import os
import signal
import socket

import numpy as np
import pytest
from tests.evaluation.small import MPP
from tests.segmentation.small import paint, write_slide
from tests.service.running import Running, is_alive, wait_for
from tests.service.small import TOKEN, settings_of

from ntrm.data.encode import write_image
from ntrm.resolution import Resolution
from ntrm.segmentation.identity import Options
from ntrm.segmentation.segment import segment
from ntrm.service.serve import _listening


@pytest.fixture
def large(tmp_path, random):
    """A slide full of tissue, so that its segmentation takes some seconds."""
    pixels = random.integers(90, 200, (1200, 1200, 3)).astype(np.uint8)
    pixels[..., 1] //= 2
    write_image(tmp_path / "root" / "large.tif", pixels, Resolution.square(MPP))
    return tmp_path / "root" / "large.tif"


def test_killing_worker_and_server_in_the_middle_loses_nothing(tmp_path, model, random, large):
    out = tmp_path / "out"
    small = write_slide(tmp_path / "root" / "small.tif", paint(random))
    arguments = (out, model, "--root", str(tmp_path / "root"))
    with Running(*arguments) as service:
        first = service.add(small, "small")
        service.wait_for(first, "done")
        finished = (out / "small" / "mask.ome.tif").read_bytes()
        key = service.add(large, "large")
        service.wait_for(key, "running", "done", least=0.02)
        (worker,) = service.workers
        os.kill(worker, signal.SIGKILL)
        wait_for("another worker", lambda: [pid for pid in service.workers if pid != worker])
        service.wait_for(key, "running", "done", least=0.02)
        below = service.workers
        service.kill()
        # A worker never outlives its service for long.
        wait_for("the worker to end", lambda: not any(is_alive(pid) for pid in below))
    with Running(*arguments) as service:
        assert service.json(f"/v1/slides/{first}")["status"] == "done"
        service.wait_for(key, "done")
        code, errors, below = service.stop()
    assert (code, errors) == (0, "")
    wait_for("its processes to end", lambda: not any(is_alive(pid) for pid in below))
    assert (out / "small" / "mask.ome.tif").read_bytes() == finished
    alone = segment(large, out=tmp_path / "alone", model=model, device="cpu", options=Options(maps=True))
    assert alone.exit_code == 0
    for name in ("mask.ome.tif", "regions.geojson", "confidence.ome.tif"):
        assert (out / "large" / name).read_bytes() == (tmp_path / "alone" / "large" / name).read_bytes()


def test_running_jobs_are_cancelled_deleted_and_put_back(tmp_path, model, large):
    out = tmp_path / "out"
    with Running(out, model, "--root", str(tmp_path / "root")) as service:
        key = service.add(large, "large")
        service.wait_for(key, "running", least=0.01)
        assert service.ask("POST", f"/v1/slides/{key}/cancel")[0] == 200
        service.wait_for(key, "cancelled")
        assert service.ask("POST", f"/v1/slides/{key}/retry")[0] == 200
        service.wait_for(key, "running", least=0.01)
        assert service.ask("DELETE", f"/v1/slides/{key}")[0] == 204
        assert service.ask("GET", f"/v1/slides/{key}")[0] == 404
        wait_for("the results to be removed", lambda: not (out / "large").exists())
        assert large.is_file()
        cut_in_the_middle(service.port, out)
        other = service.add(large, "again")
        service.wait_for(other, "running")
        code, _, below = service.stop(signal.SIGINT)
    assert code == 130
    wait_for("its processes to end", lambda: not any(is_alive(pid) for pid in below))
    with Running(out, model) as service:
        slide = service.json(f"/v1/slides/{other}")
        assert (slide["status"], slide["error"]) in ((status, None) for status in ("queued", "running", "done"))
        assert service.ask("GET", service.link, token=None)[0] == 303


def test_small_answers_are_sent_at_once(tmp_path, model):
    # asyncio turns off the waiting for more only on sockets that say that they speak TCP.
    with _listening(settings_of(tmp_path / "out", model, port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def cut_in_the_middle(port, out):
    """An upload whose sender goes away."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = "POST /v1/slides?name=x HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
        more = "Content-Type: application/octet-stream", "Content-Length: 3000000", "", ""
        connection.sendall("\r\n".join((*head, *more)).encode() + bytes(1_500_000))
        wait_for("the upload to begin", lambda: list((out / ".service" / "incoming").iterdir()))
    wait_for("the upload to be given up", lambda: not list((out / ".service" / "incoming").iterdir()))
    assert list((out / ".service" / "uploads").iterdir()) == []
