"""Equal shares, true sums, and a worker that does what the command does."""

import multiprocessing
import threading

import numpy as np
import pytest
import tifffile
import torch
from tests.evaluation.small import MPP, schema_of
from tests.pipeline.small import fingerprints, paint, write_slide

from bench import many_workers as bench
from ntrm.models.registry import create
from ntrm.pipeline.batch import segment_slides
from ntrm.slides.inputs import find_inputs, shard_of


def test_a_sheet_holds_whole_sections_in_turn_on_glass():
    small, large = np.full((50, 70, 3), 1, dtype=np.uint8), np.full((60, 90, 3), 2, dtype=np.uint8)
    sheet = bench.sheet([small, large], 500, first=0)
    assert sheet.shape == (500, 500, 3)
    assert (sheet[bench.GAP : bench.GAP + 50, bench.GAP : bench.GAP + 70] == 1).all()
    second = bench.GAP + 70 + bench.GAP
    assert (sheet[bench.GAP : bench.GAP + 60, second : second + 90] == 2).all()
    for border in (sheet[: bench.GAP], sheet[-bench.GAP :], sheet[:, : bench.GAP], sheet[:, -bench.GAP :]):
        assert (border == bench.GLASS).all()
    assert (bench.sheet([small, large], 500, first=1)[bench.GAP, bench.GAP] == 2).all()


def test_every_shard_holds_every_sheet_once(tmp_path):
    sheets = [tmp_path / f"sheet{number}.tif" for number in range(3)]
    for number, path in enumerate(sheets):
        path.write_text(str(number))
    slides = find_inputs([bench.linked(sheets, tmp_path / "slides", 12)])
    shares = [shard_of(slides, f"{number}/12") for number in range(1, 13)]
    assert [[slide.path.read_text() for slide in share] for share in shares] == [["0", "1", "2"]] * 12
    assert len({slide.path for share in shares for slide in share}) == 36


def test_slides_say_the_size_of_their_pixels(tmp_path):
    section = np.zeros((90, 120, 3), dtype=np.uint8)
    (path,) = bench.write_slides(tmp_path, [section], 300, 1, 6.7)
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[0]
        assert page.is_tiled
        assert (page.shape, page.compression) == ((300, 300, 3), 1)
        numerator, denominator = page.tags["XResolution"].value
        assert 1e4 / (numerator / denominator) == pytest.approx(6.7, rel=1e-5)


def test_a_worker_gives_the_results_of_the_command_and_counts_its_slides(tmp_path, random, seed):
    torch.manual_seed(seed)
    network = create("ntrm-paper", schema_of(), width=0.125, dim=16).describe(window=64, mpp=MPP)
    network.save_pretrained(tmp_path / "model")
    for name in "abc":
        write_slide(tmp_path / "in" / f"{name}.tif", paint(random))
    ours, theirs = multiprocessing.Pipe()
    told = []

    def give_orders():
        with ours:
            told.append(ours.recv())
            ours.send((tmp_path / "in", tmp_path / "out", "1/2"))
            told.append(ours.recv())

    boss = threading.Thread(target=give_orders)
    boss.start()
    bench.work(theirs, str(tmp_path / "model"), "cpu", 2, tmp_path / "in" / "b.tif", tmp_path / "warm")
    boss.join()
    wanted = segment_slides(
        tmp_path / "in", out=tmp_path / "single", model=tmp_path / "model", device="cpu", batch=2, shard="1/2"
    )
    assert fingerprints(tmp_path / "out") == fingerprints(tmp_path / "single")
    areas = [slide.row["tissue_area_mm2"] for slide in wanted.slides]
    assert told[1]["done"] == len(areas) == 2
    assert told[1]["tissue_mm2"] == pytest.approx(sum(areas))
    assert told[1]["failed"] == []
    assert told[1]["processor"] > 0


class Told:
    """Workers whose answers are known."""

    def __init__(self, rates, failed=()):
        self.rates, self.failed = rates, failed

    def run(self, workers, slides, out):
        answer = {"processor": 6.0, "tissue_mm2": 8.0, "done": 2, "failed": [*self.failed]}
        return 100.0, [{**answer, "ended": 100.0 + self.rates[workers] - 1.0 * number} for number in range(workers)]


def test_a_line_counts_to_the_last_worker_and_compares_with_the_first(tmp_path):
    sheets = [tmp_path / "a.tif", tmp_path / "b.tif"]
    for path in sheets:
        path.touch()
    report = {"device": "cpu", "slide_mm2": 10.0, "lines": []}
    crew = Told({1: 4.0, 2: 5.0})
    for workers in (1, 2):
        report["lines"].append(bench.line(crew, workers, sheets, tmp_path, report))
    one, two = report["lines"]
    assert (one["slides_per_h"], one["e"], one["cores_busy"]) == (1800.0, 1.0, 1.5)
    assert two["slides_per_h"] == pytest.approx(4 / 5 * 3600)
    assert two["e"] == pytest.approx(4 / 5)
    assert (two["mm2_per_s"], two["tissue_mm2_per_s"]) == pytest.approx((8.0, 3.2))
    assert two["first_to_end"] == pytest.approx(4 / 5)
    assert two["busy_percent"] is None
    head = {"side": 1000, "each": 2, "batch": 4, "cores": 2, "threads": 1, "mps": "on"}
    assert "| 2 | 2,880 | 2.50 | 8 | 0.80 | – | – | 2.4 |" in bench.table({**report, **head})
    with pytest.raises(SystemExit, match="disk full"):
        bench.line(Told({3: 1.0}, ["disk full"]), 3, sheets, tmp_path, report)


def test_the_card_is_asked_about_the_line_alone(tmp_path):
    card = bench.Card(tmp_path / "card.txt", "cpu")
    with card:
        pass
    (tmp_path / "card.txt").write_text("0, 500\n40, 900\n60, 800\n0, 500\ncut")
    card._begun, card._ended = 10.0, 14.0
    assert card.between(10.5, 12.5) == (50.0, 900.0)
    assert card.between(20.0, 21.0) == (None, None)


def test_time_that_is_up_ends_the_waiting(tmp_path):
    crew = bench.Crew(tmp_path, ("bundled", "cpu", 1), tmp_path, until=0.0)
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, pytest.raises(bench.LateError):
        crew._answers([ours])
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with ours, pytest.raises(SystemExit, match="died"):
        crew._answers([ours])


def test_without_the_daemon_it_goes_on_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "MPS_PLACES", str(tmp_path))
    with bench.sharing(tmp_path) as state:
        assert state == f"off: no {bench.MPS}"


def test_the_daemon_is_ended_where_no_kernel_runs_with_it(tmp_path, monkeypatch):
    orders = tmp_path / "orders"
    program = tmp_path / bench.MPS
    program.write_text(
        f'#!/bin/sh\necho "$1$CUDA_MPS_PIPE_DIRECTORY" >> "{orders}"\n[ "$1" = -d ] || cat >> "{orders}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(bench, "MPS_PLACES", str(tmp_path))
    monkeypatch.setattr(bench, "PROBE", "raise SystemExit(1)")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with bench.sharing(tmp_path) as state:
        assert state.startswith("off: a first kernel")
        assert "CUDA_MPS_PIPE_DIRECTORY" not in bench.os.environ
    place = tmp_path / "mps-pipe"
    assert orders.read_text().split() == [f"-d{place}", str(place), "quit"]
