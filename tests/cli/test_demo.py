import json

from typer.testing import CliRunner

from ntrm.cli import tour as tour_module
from ntrm.cli.main import app
from ntrm.results.tables import read_results
from ntrm.segment.batch import Segmented
from ntrm.segment.segmenter import Outcome

runner = CliRunner()


def test_the_demo_ends_with_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(tour_module, "SECTIONS", 3)
    monkeypatch.setattr(tour_module, "SEED", 35)  # of small sections
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "demo"), "--jobs", "1"])
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "No fault was found." in page
    assert page.count("data:image/png") == 6
    # Where the bundled model has a relation module, the tour points at what it attended to.
    graph = tmp_path / "demo" / "results" / read_results(tmp_path / "demo" / "results").slides.column("slide_id")[0]
    related = json.loads((graph / "graph.json").read_text())["network"] is not None
    assert ("Relations, Attention" in page) == ("Relations, Attention" in result.stdout) == related
    assert "not for real slides" in page
    assert json.loads((tmp_path / "demo" / "stats.json").read_text())["sections"] == 3
    assert "index.html" in result.stdout
    # Not at a terminal: the viewer is named, not started.
    demo = tmp_path / "demo"
    assert f"ntrm serve {demo / 'results'} --root {demo / 'phantom'} --root {demo / 'foreign'}" in result.stderr
    slides = read_results(tmp_path / "demo" / "results").slides
    assert slides.column("status") == ["done", "done"]
    # The tour says where the model is wrong, and how to mend it.
    assert "In the viewer press e, click there, choose" in result.stdout
    assert "one click would change" in page
    assert "--preview" in page
    assert (tmp_path / "demo" / "results" / slides.column("slide_id")[0] / "report.html").is_file()
    failed = Segmented(tmp_path, (Outcome("a", "failed", "the disk is full"),), {})
    monkeypatch.setattr(tour_module, "segment_slides", lambda *_, **__: failed)
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "demo"), "--jobs", "1"])
    assert result.exit_code == 1
    assert "the disk is full" in result.stderr


def test_the_demo_leaves_the_folders_of_others_alone(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    result = runner.invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 3
    assert "index.html" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert runner.invoke(app, ["demo", "--out", str(tmp_path / "index.html")]).exit_code == 2
    assert (tmp_path / "index.html").read_text() == "mine"
