import json

import numpy as np
import pytest
from tests.helpers import write_section
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.paper.plan import FACTORS


@pytest.fixture
def data(tmp_path, random):
    root = tmp_path / "data"
    rows = ["name,group,split"]
    for number, split in enumerate(("train", "val", "test"), start=1):
        name = f"BCC_{3 * number + 1}"
        image = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        write_section(root, "10x", name, image, random.integers(0, 12, (64, 64), dtype=np.uint8))
        rows.append(f"{name},{number},{split}")
    (root / "cases.csv").write_text("\n".join(rows) + "\n")
    return root


def call(data, out, *words):
    return CliRunner().invoke(app, ["reproduce", "--data", str(data), "--out", str(out), "--dry-run", *words])


def test_a_dry_run_shows_the_plan(data, tmp_path):
    words = ("--archs", "ntrm-paper,mit", "--seeds", "0,1", "--option", "width=0.125", "--no-ablation")
    result = call(data, tmp_path / "out", *words)
    assert result.exit_code == 0
    assert "to do  ntrm-paper width=0.125 10x scratch seed 1" in result.output
    assert "6 runs, 0 of them done" in result.output
    assert not (tmp_path / "out").exists()
    document = json.loads(call(data, tmp_path / "out", *words, "--json").stdout)
    assert [job["arch"] for job in document["jobs"]] == ["ntrm-paper", "mit-b2", "ntrm-control"] * 2
    assert document["done"] == 0


def test_settings_reach_the_recipe(data, tmp_path):
    words = ("--archs", "ntrm-paper", "--recipe", "paper", "--set", "epochs=3", "--option", "width=0.125", "--json")
    document = json.loads(call(data, tmp_path / "out", *words).stdout)
    assert (document["recipe"]["epochs"], document["recipe"]["batch"]) == (3, 4)
    # NTRM, its control, every factor, and the control of the one that changes it.
    assert len(document["jobs"]) == 3 * (1 + 1 + len(FACTORS) + 1)


def test_wrong_usage_and_a_folder_with_something_else_are_told(data, tmp_path):
    for words, said in ((("--archs", "unet"), "unknown architecture"), (("--seeds", "x"), "impossible seed")):
        result = call(data, tmp_path / "out", *words)
        assert (result.exit_code, said in result.output) == (2, True)
    (tmp_path / "thesis.tex").write_text("years of work")
    result = CliRunner().invoke(app, ["reproduce", "--data", str(data), "--out", str(tmp_path), "--device", "cpu"])
    assert (result.exit_code, "no reproduction" in result.output) == (3, True)
