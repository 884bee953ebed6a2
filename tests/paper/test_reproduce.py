"""The whole way in small: killed in the middle, gone on, one run that fails, and a page with the right numbers."""

import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tests.helpers import is_held, training_that_waits, wait_for
from tests.paper.test_page import read_csv
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.paper.plan import Request
from ntrm.training.recipe import parse_overrides

pytestmark = pytest.mark.slow

ARCHS = ("unet-resnet18", "ntrm-paper", "deeplabv3plus")
SETTINGS = ("steps=24", "validate_every=6", "batch=2", "window=64", "overlap=0", "workers=0", "augment=none")

NTRM = """
import sys

from ntrm.__main__ import main
from ntrm.paper import run

run.NTRM = (sys.executable, "-c", sys.argv.pop(1))
main()
"""
"""``ntrm`` that runs its jobs by the program in its first argument."""


def arguments(data, out):
    words = ["reproduce", "--data", str(data), "--out", str(out), "--archs", ",".join(ARCHS), "--seeds", "0"]
    words += ["--resolutions", "10x", "--no-ablation", "--device", "cpu"]
    words += ["--option", "width=0.125", "--option", "dim=8", "--progress", "none"]
    return words + [word for setting in SETTINGS for word in ("--set", setting)]


def only(folder, pattern):
    return next(iter(folder.glob(pattern)), None)


def test_a_reproduction_that_is_killed_goes_on_and_its_page_has_the_right_numbers(stripes, tmp_path):
    # One test: the story takes long, and tests of one file may run in several processes, each with a story of its own.
    story = tell(stripes, tmp_path)
    check_a_killed_reproduction_goes_on(story)
    check_a_failed_run_is_reported_and_the_others_go_on(story)
    check_the_numbers_of_the_tables_are_those_of_the_counts(story)
    check_every_figure_is_drawn(story)
    check_results_that_came_without_models_give_the_same_tables(story, stripes, tmp_path)


def tell(stripes, root):
    """Two runs are done; kill -9 in the middle of the third; spoil the fourth; go on to the end."""
    out, runs = root / "out", root / "out" / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NTRM_CACHE", str(root / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        jobs = do_two(stripes, out)
        killed, number = runs / jobs["ntrm-paper"].key, root / "number"
        told = f"import os; open({str(number)!r}, 'w').write(str(os.getpid()))"
        waiting = training_that_waits(1, f"{told}\nfrom ntrm.__main__ import main\nmain()")
        command = [sys.executable, "-c", NTRM, waiting, *arguments(stripes, out), "--jobs", "1"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for("a checkpoint", lambda: process.poll() is not None or only(killed, "checkpoints/step-*.ckpt"))
            assert process.poll() is None, "the reproduction ended before it could be killed"
        finally:
            process.kill()
            process.wait()
        # A training goes on without the command that has started it, and its folder is its own until it ends.
        assert is_held(killed / ".lock")
        os.kill(int(number.read_text()), signal.SIGKILL)
        wait_for("its end", lambda: not is_held(killed / ".lock"))
        half = json.loads((killed / "provenance.json").read_text())
        first = runs / jobs["unet-resnet18"].key / "evaluation" / "metrics.json"
        before = first.stat().st_mtime_ns, first.read_bytes()
        spoilt = runs / jobs["deeplabv3plus"].key
        spoilt.mkdir()
        (spoilt / "stranger.txt").write_text("not a run")
        result = CliRunner().invoke(app, [*arguments(stripes, out), "--jobs", "2", "--json"])
    return SimpleNamespace(out=out, result=result, half=half, killed=killed, first=first, before=before, spoilt=spoilt)


def do_two(data, out):
    """Two runs, done by their own commands in this process; returns the plan's jobs by network."""
    overrides = parse_overrides(SETTINGS)
    options = {"width": 0.125, "dim": 8}
    request = Request(data, out, ARCHS, ("10x",), (0,), overrides=overrides, options=options, ablation=False)
    request.check_folder()
    jobs = {job.variant.arch: job for job in request.plan().jobs}
    for arch in ("unet-resnet18", "ntrm-control"):  # a process of their own would spend its time importing
        for words in request.commands(jobs[arch]):
            assert CliRunner().invoke(app, [*words, "--device", "cpu", "--progress", "none"]).exit_code == 0
    return jobs


def check_a_killed_reproduction_goes_on(story):
    assert story.half["finished"] is False
    assert (story.killed / "evaluation" / "metrics.json").is_file()
    after = json.loads((story.killed / "provenance.json").read_text())
    assert (after["finished"], after["sessions"], after["steps"]) == (True, 2, 24)
    assert not (story.killed / "checkpoints").exists()
    # What was done stays as it was.
    assert (story.first.stat().st_mtime_ns, story.first.read_bytes()) == story.before
    assert json.loads(story.result.stdout)["ran"] == 2


def check_a_failed_run_is_reported_and_the_others_go_on(story):
    assert story.result.exit_code == 1
    document = json.loads(story.result.stdout)
    ((label, reason),) = document["failed"].items()
    assert label.startswith("deeplabv3plus")
    assert "there is no run in this folder" in reason
    assert (document["jobs"], document["done"]) == (4, 3)
    assert (story.spoilt / "stranger.txt").read_text() == "not a run"
    assert "there is no run in this folder" in (story.out / "index.html").read_text()
    rows = read_csv(story.out / "tables" / "runs.csv")
    assert [row["network"] for row in rows if row["status"] != "done"] == ["deeplabv3plus"]


def check_the_numbers_of_the_tables_are_those_of_the_counts(story):
    rows = {row["system"]: row for row in read_csv(story.out / "tables" / "table1.csv")}
    assert (rows["DeepLabV3+"]["accuracy"], rows["DeepLabV3+"]["accuracy failed"]) == ("", "1")
    for title, arch in (("U-Net (ResNet)", "unet-resnet18"), ("NTRM", "ntrm-paper")):
        with np.load(only(story.out / "runs", f"{arch}_*/evaluation/confusions.npz")) as stored:
            table = stored["final"].sum(axis=0)
        either = table.sum(axis=0) + table.sum(axis=1)
        hits, either = np.diag(table)[either > 0], either[either > 0]
        found = [float(rows[title][column]) for column in ("accuracy", "mean IoU", "Dice")]
        ious, dices = hits / (either - hits), 2 * hits / either
        assert found == pytest.approx([hits.sum() / table.sum(), ious.mean(), dices.mean()])
    claims = {row["claim"]: row for row in read_csv(story.out / "tables" / "claims.csv")}
    assert claims["the highest mean IoU"]["verdict"] == "left out"  # DeepLabV3+ failed
    assert claims["errors corrected at the RET–HYP interface"]["verdict"] == "not established"  # two patients
    (resolution,) = read_csv(story.out / "tables" / "table2.csv")
    assert float(resolution["seconds per section"]) > 0
    assert resolution["training windows"] == "8"


def check_every_figure_is_drawn(story):
    drawn = {path.stem for path in (story.out / "figures").glob("*.png")}
    assert drawn == {"dataset", "learning", "qualitative", "improvement", "pipeline", "architecture", "trm"}
    page = (story.out / "index.html").read_text()
    assert page.count("data:image/png;base64") == len(drawn)


def check_results_that_came_without_models_give_the_same_tables(story, data, root):
    moved = root / "moved"
    shutil.copytree(story.out, moved, ignore=shutil.ignore_patterns("*.safetensors", "tables", "figures", "index.html"))
    words = [*arguments(data, moved), "--archs", "unet-resnet18,ntrm-paper", "--json"]
    result = CliRunner().invoke(app, words, env={"NTRM_CACHE": str(root / "cache")})
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ran"] == 0
    before = [row for row in read_csv(story.out / "tables" / "table1.csv") if row["system"] != "DeepLabV3+"]
    assert read_csv(moved / "tables" / "table1.csv") == before
    assert not (moved / "tables" / "complexity_stages.csv").exists()
    assert {path.stem for path in (moved / "figures").glob("*.png")} == {"dataset", "learning"}
    page = (moved / "index.html").read_text(encoding="utf-8")
    assert "No trained network is left of unet-resnet18, ntrm-paper, ntrm-control:" in page
