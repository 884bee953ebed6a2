"""The curve is of the runs that are there, arm by arm."""

import json

import pytest

pytest.importorskip("research.section_networks", reason="this copy has no folder research/")

from research.learning_curve import main


def finished(folder, arm, seed, iou):
    place = folder / "runs" / "phantom-0.5" / arm / str(seed) / "val"
    place.mkdir(parents=True)
    (place / "row.json").write_text(json.dumps({"arm": arm, "seed": seed, "iou": iou}))


def test_it_tells_the_mean_over_seeds_by_number_of_sections(tmp_path, capsys):
    for size, scores in {8: (0.5, 0.7), 32: (0.8, 0.9)}.items():
        for seed, iou in enumerate(scores):
            finished(tmp_path / f"s{size}", "control", seed, iou)
    finished(tmp_path / "s32", "dropout", 0, 0.75)
    studies = [f"32={tmp_path / 's32'}", f"8={tmp_path / 's8'}"]
    assert main(["--studies", *studies, "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "| training sections | 8 | 32 |" in told
    assert "| `control` | 0.600 (2) | 0.850 (2) |" in told
    assert "| `dropout` | – | 0.750 (1) |" in told
    assert (tmp_path / "out" / "curve.png").stat().st_size > 1000
    main(["--studies", *studies, "--arms", "control", "--out", str(tmp_path / "out")])
    assert "dropout" not in (tmp_path / "out" / "curve.md").read_text()


def test_folders_without_runs_are_told(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--studies", f"8={tmp_path}", "--out", str(tmp_path / "out")])
    assert "no finished run of phantom-0.5 (val)" in capsys.readouterr().err
