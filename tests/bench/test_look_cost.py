"""The bench of what is done before the network runs, on a slide of two windows' size."""

import os
from argparse import Namespace

import numpy as np
from bench.look_cost import processor_of, study, table
from PIL import Image


def test_every_stage_has_its_cost_and_the_children_are_counted(tmp_path, random):
    Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    asked = Namespace(picture=tmp_path / "a.png", sizes="300x400", rounds=1)
    report = study(asked, tmp_path)
    stages = report["sizes"]["300x400"]["stages"]
    assert {"thumbnail", "tissue", "look, all of it", "tiles of the windows"} <= set(stages)
    assert all(cost["process"] >= 0 for cost in stages.values())
    assert all(f"| {name} |" in table(report) for name in stages)
    assert processor_of(os.getpid()) > 0
