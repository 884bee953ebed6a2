import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ntrm.cli.data import resample
from ntrm.core.labels import SKIN
from ntrm.core.mpp import level_resolution
from ntrm.data.image_files import image_size, write_image, write_rgb_mask

runner = CliRunner()
app = typer.Typer()
app.command()(resample)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "in"
    write_image(root / "2x/Images/BCC_1.tif", np.full((50, 40, 3), 200, dtype=np.uint8), level_resolution("2x"))
    write_rgb_mask(root / "2x/Masks/BCC_1.png", np.zeros((50, 40), dtype=np.uint8), SKIN)
    return root


def test_levels_are_written_once(folder, tmp_path):
    arguments = [str(folder), "--to", "5x,10x", "--out", str(tmp_path / "out"), "--jobs", "1"]
    first = json.loads(runner.invoke(app, [*arguments, "--json"]).stdout)
    assert (first["written"], first["skipped"], first["levels"]) == (4, 0, ["10x", "5x"])
    assert image_size(tmp_path / "out/5x/Images/BCC_1.tif") == (20, 16)
    assert image_size(tmp_path / "out/10x/Masks/BCC_1.png") == (10, 8)
    assert "0 files written (4 were there already)" in runner.invoke(app, arguments).stdout.replace("\n", " ")


def test_finer_levels_are_refused(folder, tmp_path):
    result = runner.invoke(app, [str(folder), "--to", "1x", "--out", str(tmp_path / "out")])
    assert result.exit_code == 3
    assert "finer" in result.stderr
    assert not (tmp_path / "out").exists()
