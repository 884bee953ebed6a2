import os
import signal
import socket
from contextlib import closing

import numpy as np
import pytest
from tests.evaluation.small import MPP
from tests.helpers import is_alive, wait_for
from tests.segment.small import paint, write_slide
from tests.service.running import Running, children_of
from tests.service.small import TOKEN, serving, settings_of

from ntrm.core.errors import RefusedError
from ntrm.core.io import PARTIAL
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.results.manifest import Manifest, check_results_folder
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options
from ntrm.service.core.settings import DATABASE
from ntrm.service.jobs.database import JobStore
from ntrm.service.serve import serve


def write_tissue(path, side):
    """A slide full of tissue in a few colours, so that its network takes some seconds and its measuring does not."""
    pixels = np.full((side, side, 3), (150, 70, 140), dtype=np.uint8)
    for corner in range(100, side - 200, 400):
        pixels[corner : corner + 150, side - corner - 150 : side - corner] = (90, 30, 110)
    write_image(path, pixels, Resolution.square(MPP))
    return path


@pytest.fixture
def root(tmp_path, random):
    write_slide(tmp_path / "root" / "small.tif", paint(random))
    return tmp_path / "root"


def test_killing_worker_and_server_in_the_middle_loses_nothing(tmp_path, model, root):
    out = tmp_path / "out"
    small, large = root / "small.tif", write_tissue(root / "large.tif", 1000)
    arguments = (out, model, "--root", str(root))
    with Running(*arguments) as service:
        first = service.add(small, "small")
        service.wait_for(first, "done")
        finished = (out / "small" / "mask.ome.tif").read_bytes()
        key = service.add(large, "large")
        service.wait_for(key, "running", "done", least=0.15)
        (worker,) = service.workers
        os.kill(worker, signal.SIGKILL)
        wait_for("another worker", lambda: [pid for pid in service.workers if pid != worker])
        service.wait_for(key, "running", "done", least=0.15)
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
    alone = segment_slides(large, out=tmp_path / "alone", model=model, device="cpu", options=Options(maps=True))
    assert alone.exit_code == 0
    for name in ("mask.ome.tif", "regions.geojson", "confidence.ome.tif"):
        assert (out / "large" / name).read_bytes() == (tmp_path / "alone" / "large" / name).read_bytes()


def test_running_jobs_are_cancelled_deleted_and_killed_where_they_do_not_hear(tmp_path, model, root):
    # Never finished: far more than the machine can do between two questions.
    endless = write_tissue(root / "endless.tif", 2400)
    out = tmp_path / "out"
    with serving(settings_of(out, model, roots=(root,), workers=1, device="cpu")) as client:

        def add(name):
            made = client.post("/v1/slides", json={"path": str(root / f"{name}.tif"), "slide_id": name})
            return f"/v1/slides/{made.json()['id']}"

        def wait(url, status, least=0.0):
            def there():
                slide = client.get(url).json()
                return slide["status"] == status and slide["progress"] >= least

            wait_for(f"{url} to be {status}", there)

        url = add("endless")
        wait(url, "running", 0.001)
        assert client.post(f"{url}/cancel").status_code == 200
        wait(url, "cancelled")
        assert client.post(f"{url}/retry").status_code == 200
        wait(url, "running", 0.001)
        # A worker that stands still hears nothing, as one in a library's endless loop.
        (worker,) = children_of(os.getpid(), "ntrm.service.jobs.worker")
        os.kill(worker, signal.SIGSTOP)
        below = [worker, *children_of(worker)]
        (out / "endless" / f"{PARTIAL}left.tif").write_bytes(b"x")
        following = add("small")
        assert client.post(f"{url}/cancel").json()["status"] == "running"
        wait(url, "cancelled")
        wait_for("its processes to end", lambda: not any(is_alive(pid) for pid in below))
        assert [path for path in (out / "endless").rglob("*") if path.name.startswith(PARTIAL)] == []
        wait(following, "done")
        assert children_of(os.getpid(), "ntrm.service.jobs.worker") != [worker]
        assert client.post(f"{url}/retry").status_code == 200
        wait(url, "running", 0.001)
        assert client.delete(url).status_code == 204
        assert client.get(url).status_code == 404
        wait_for("the results to be removed", lambda: not (out / "endless").exists())
    assert endless.is_file()


def test_ctrl_c_puts_jobs_back_and_a_sender_that_goes_leaves_nothing(tmp_path, model, root):
    write_tissue(root / "endless.tif", 3600)
    out = tmp_path / "out"
    with Running(out, model, "--root", str(root)) as service:
        key = service.add(root / "endless.tif", "endless")
        cut_in_the_middle(service.port, out)
        assert service.ask("GET", service.link, token=None)[0] == 200
        service.wait_for(key, "running")
        code, _, below = service.stop(signal.SIGINT)
    assert code == 130
    wait_for("its processes to end", lambda: not any(is_alive(pid) for pid in below))
    with closing(JobStore(out / ".service" / DATABASE)) as store:
        slide = store.get(key)
    assert (slide.status, slide.error) == ("queued", None)


def test_results_of_other_classes_are_not_shown_under_the_models_names(tmp_path, model):
    out = tmp_path / "out"
    out.mkdir()
    classes = ("background", "benign gland", "malignant gland")
    check_results_folder(out, Manifest(model={"name": "glands"}, options={}, classes=classes), [])
    with pytest.raises(RefusedError, match="results of other classes") as caught:
        serve(settings_of(out, model, port=0), lambda _address, _link: None)
    assert "malignant gland" in str(caught.value.got)
    assert "(glands)" in caught.value.hint
    assert not (out / ".service").exists()


def cut_in_the_middle(port, out):
    """An upload whose sender goes away."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = "POST /v1/slides?name=x HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
        more = "Content-Type: application/octet-stream", "Content-Length: 3000000", "", ""
        connection.sendall("\r\n".join((*head, *more)).encode() + bytes(1_500_000))
        wait_for("the upload to begin", lambda: list((out / ".service" / "incoming").iterdir()))
    wait_for("the upload to be given up", lambda: not list((out / ".service" / "incoming").iterdir()))
    assert list((out / ".service" / "uploads").iterdir()) == []
