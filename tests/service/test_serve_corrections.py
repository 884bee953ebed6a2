"""A service that corrects, killed where it hurts most."""

import json
import os
import signal

import numpy as np
import tifffile
from tests.helpers import wait_for
from tests.service.running import Running
from tests.service.test_serve import write_tissue

from ntrm.correct.mask import corrections_in, open_mask


def ask(service, url, body=None):
    """The document that a POST is answered with."""
    status, content = service.ask("POST", url, body)
    assert status in (200, 201, 202), content
    return json.loads(content)


def test_killing_worker_and_server_loses_neither_the_region_graph_nor_a_step(tmp_path, model):
    out, root = tmp_path / "out", tmp_path / "root"
    arguments = (out, model, "--root", str(root))
    write_tissue(root / "a.tif", 900)
    with Running(*arguments) as service:
        key = service.add(root / "a.tif", "a")
        service.wait_for(key, "done")
        url = f"/v1/slides/{key}/corrections"
        assert service.json(url)["graph"] == "missing"
        assert ask(service, f"{url}/graph")["graph"] in ("waiting", "making")
        wait_for("the graph to be begun", lambda: (service.json(url)["graph_progress"] or 0) > 0)
        (worker,) = service.workers
        os.kill(worker, signal.SIGKILL)
        wait_for("another worker to make the graph", lambda: service.json(url)["graph"] == "ready")
        part = service.json(f"{url}/part?x=450.5&y=450.5")
        click = {"action": "name", "version": 0, "points": [[450.5, 450.5]], "tissue": other_than(part["tissue"])}
        seen = ask(service, f"{url}/preview", click)
        after = ask(service, url, click)
        service.kill()
    assert (after["version"], after["regions"]) == (1, seen["regions"])
    with Running(*arguments) as service:
        document = service.json(url)
        assert (document["steps"], document["graph"]) == (after["steps"], "ready")
        wait_for("the corrected files", lambda: service.json(url)["corrected"])
        assert service.json(f"/v1/slides/{key}/corrected/summary")["corrected"]["regions"] == after["regions"]
        service.stop()
    mask = open_mask(out / "a")
    expected = corrections_in(mask)[1].paint(mask.labels())
    np.testing.assert_array_equal(tifffile.imread(out / "a" / "corrected" / "mask.ome.tif"), expected + 1)


def other_than(tissue):
    return "RET" if tissue != "RET" else "EPI"
