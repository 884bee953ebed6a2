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
    return CliRunner().invoke(
        app, ["reproduce", "--data", str(data), "--out", str(out), "--option", "width=0.125", *words]
    )


def test_a_dry_run_shows_the_plan(data, tmp_path):
    words = ("--dry-run", "--archs", "ntrm-paper,mit", "--seeds", "0,1", "--no-ablation")
    result = call(data, tmp_path / "out", *words)
    assert result.exit_code == 0
    assert "to do  ntrm-paper width=0.125 10x scratch seed 1" in result.output
    assert "6 runs, 0 of them done" in result.output
    assert not (tmp_path / "out").exists()
    document = json.loads(call(data, tmp_path / "out", *words, "--json").stdout)
    assert [job["arch"] for job in document["jobs"]] == ["ntrm-paper", "mit-b2", "ntrm-control"] * 2
    settings = ("--dry-run", "--archs", "ntrm-paper", "--recipe", "paper", "--set", "epochs=3", "--json")
    document = json.loads(call(data, tmp_path / "out", *settings).stdout)
    assert (document["recipe"]["epochs"], document["recipe"]["batch"], document["done"]) == (3, 4, 0)
    # NTRM, its control, every factor, and the control of the one that changes it.
    assert len(document["jobs"]) == 3 * (1 + 1 + len(FACTORS) + 1)


def test_wrong_usage_and_a_folder_with_something_else_are_told(data, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for words, code, said in (
        (("--dry-run", "--archs", "unet"), 2, "unknown architecture"),
        (("--dry-run", "--seeds", "x"), 2, "impossible seed"),
        (("--device", "cpu"), 3, "no reproduction"),
    ):
        result = call(data, tmp_path, *words)
        assert (result.exit_code, said in result.output) == (code, True)
