import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ntrm.cli.data import split
from ntrm.core.labels import SKIN
from ntrm.data.image_files import write_rgb_mask
from ntrm.data.split import read_split

runner = CliRunner()
app = typer.Typer()
app.command()(split)


@pytest.fixture
def folder(tmp_path):
    for number in range(20):
        path = tmp_path / "in" / "10x" / "Masks" / f"{'BCC' if number % 2 else 'IEC'}_{60 + number}.png"
        write_rgb_mask(path, np.zeros((3, 3), dtype=np.uint8), SKIN)
    return tmp_path / "in"


def test_the_file_holds_what_is_told(folder, tmp_path):
    out = tmp_path / "split.csv"
    result = runner.invoke(app, [str(folder), "--out", str(out), "--fractions", "60,20,20", "--seed", "5", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["sections"] == {"train": 12, "val": 4, "test": 4}
    assert document["cancers"]["train"] == {"BCC": 6, "IEC": 6}
    assert read_split(out).by_name == document["split"]


def test_people_see_the_counts_and_what_was_kept(folder, tmp_path):
    out = tmp_path / "split.csv"
    assert "IEC" in runner.invoke(app, [str(folder), "--out", str(out)]).stdout
    again = runner.invoke(app, [str(folder), "--out", str(out), "--seed", "9"])
    assert again.exit_code == 0
    assert "20 of 20 sections kept" in again.stderr


def test_wrong_fractions_and_a_file_in_the_dataset_are_refused(folder, tmp_path):
    assert runner.invoke(app, [str(folder), "--out", str(tmp_path / "x.csv"), "--fractions", "1,2"]).exit_code == 2
    assert runner.invoke(app, [str(folder), "--out", str(folder / "cases.csv")]).exit_code == 3
    assert not (tmp_path / "x.csv").exists()
    assert not (folder / "cases.csv").exists()
