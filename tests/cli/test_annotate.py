import json

import numpy as np
from tests.segment.small import paint, write_slide
from typer.testing import CliRunner

from ntrm.cli import annotate as annotate_module
from ntrm.cli.main import app


def test_slides_are_opened_and_the_page_is_started_for_them(tmp_path, monkeypatch):
    def annotate(*words):
        return CliRunner().invoke(app, ["annotate", *map(str, words)])

    slide, out = write_slide(tmp_path / "in" / "a.tif", paint(np.random.default_rng(3))), tmp_path / "out"
    (tmp_path / "in" / "b.svs").write_bytes(b"nothing")
    started = []
    monkeypatch.setattr(annotate_module, "start_service", lambda settings, _: started.append(settings) or 0)
    first = annotate(slide, "--out", out, "--classes", "tumour, stroma", "--json")
    document = json.loads(first.stdout)
    assert (first.exit_code, document["model"], document["slides"][0]["status"]) == (0, None, "done")
    assert document["classes"] == ["tumour", "stroma", "background", "unnamed"]
    assert "no model" in first.stderr
    assert started == []
    second = annotate(tmp_path / "in", "--out", out, "--serve", "--port", 0)
    assert second.exit_code == 1
    assert "error: b: " in second.stderr
    assert [(each.out, each.roots, each.port) for each in started] == [(out, (tmp_path / "in",), 0)]
