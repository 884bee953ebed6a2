"""The clock of the stages: they add up to the whole, and every one of them is there."""

import pytest
from tests.evaluation.small import MPP, ByColour
from tests.pipeline.small import paint, write_slide

from bench import segment_speed as bench
from ntrm.inference.predictor import Predictor
from ntrm.models.registry import create
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Segmenter


def test_stages_add_up_to_the_whole(tmp_path, random):
    slide = write_slide(tmp_path / "a.tif", paint(random))
    probabilities = Predictor.probabilities
    took, stages = bench.whole(Segmenter(ByColour(), tmp_path / "out", device="cpu", batch=2), slide)
    assert Predictor.probabilities is probabilities
    assert all(stages[name].clock > 0 for name in bench.STAGES if name != "stream")
    added = (cost.clock for name, cost in stages.items() if not name.endswith(")"))
    assert sum(added) == pytest.approx(took.clock)
    with pytest.raises(SystemExit, match="kept"):
        bench.whole(Segmenter(ByColour(), tmp_path / "out", device="cpu", batch=2), slide)


def test_the_windows_are_those_that_the_slide_needs(tmp_path, random, monkeypatch):
    slide = write_slide(tmp_path / "a.tif", paint(random))
    tiles = bench.tiles_of(slide, MPP, Options(), 64)
    seen = []
    plain = Predictor.probabilities

    def counting(self, pixels, **more):
        seen.append(len(pixels))
        return plain(self, pixels, **more)

    predictor = Predictor(ByColour(), "cpu", batch=2)
    monkeypatch.setattr(Predictor, "probabilities", counting)
    assert bench.bare(predictor, tiles).clock > 0
    alone = sum(seen)
    seen.clear()
    bench.whole(Segmenter(ByColour(), tmp_path / "out", device="cpu", batch=2), slide)
    assert len(tiles) == alone == sum(seen)


def test_a_further_network_sees_all_and_changes_nothing(tmp_path, random, monkeypatch):
    slide = write_slide(tmp_path / "a.tif", paint(random))
    tiles, predictor = bench.tiles_of(slide, MPP, Options(), 64), Predictor(ByColour(), "cpu", batch=2)
    expected, plain, seen, other = predictor.probabilities(tiles[:2]).final, Predictor.probabilities, [], ByColour()
    other.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    monkeypatch.setattr(bench, "create", lambda arch, classes: {("large", 3): other}[arch, classes])
    with bench.more_network("large", 3, "cpu"):
        assert predictor.probabilities(tiles[:2]).final.equal(expected)
    assert seen == [2]
    assert Predictor.probabilities is plain
    with bench.more_network(None, 3, "cpu"):
        assert Predictor.probabilities is plain


def test_several_slides_share_their_time(tmp_path, random):
    slide = write_slide(tmp_path / "a.tif", paint(random))
    cost = bench.one_of(2, slide, tmp_path / "out", ByColour(), "cpu", 2)
    assert cost.clock > 0
    assert len([*tmp_path.glob("out/*/summary.json")]) == 2
    broken = tmp_path / "broken.tif"
    broken.write_bytes(b"no slide")
    with pytest.raises(SystemExit, match="not segmented"):
        bench.one_of(1, broken, tmp_path / "none", ByColour(), "cpu", 2)


def test_the_study_runs(tmp_path, random, monkeypatch):
    slide = write_slide(tmp_path / "a.tif", paint(random))
    network = create("ntrm-control", 3, width=0.125)
    network.describe(mpp=MPP, window=64)
    network.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(bench, "create", lambda arch, classes: create(arch, classes, width=0.125))
    settings = {"repeats": 1, "batch": 4, "device": "cpu", "slides": 2, "more": "ntrm"}
    found = bench.study(slide, str(tmp_path / "model"), tmp_path / "work", **settings)
    names = list(found["rounds"][0])
    assert names[:3] == ["network alone", "whole", "one of 2"]
    assert "command" not in names
    assert f"{found['windows']} windows, batch 4, cpu, and ntrm-paper, 1 repeats" in bench.table(found)


def test_the_table_has_medians_of_ratios():
    rounds = [
        {"network alone": {"clock": n, "processor": 1.0}, "whole": {"clock": w, "processor": 2.0}}
        for n, w in ((1.0, 3.0), (2.0, 3.0), (4.0, 4.0))
    ]
    found = {"slide": "2 × 3 pixels", "windows": 5, "batch": 2, "device": "cpu", "rounds": rounds}
    assert "| whole | 3.00 | 1.500 | 2.00 | 2.000 |" in bench.table(found)
