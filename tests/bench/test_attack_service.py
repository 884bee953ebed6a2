"""The attacks are what they say, the same for the same seed, and whatever does not hold ends with 1."""

import io
import struct
from random import Random

import numpy as np
import pytest
import tifffile
from bench.attack_corrections import nonsense
from bench.attack_folders import PLANTS, digest, many_corrections, strange_names
from bench.attack_service import Finding, exit_code, table
from bench.hostile import hostile_files, malformed_requests, picture, png_bomb, tiff_bomb, vms
from PIL import Image

from ntrm.slides.readers.formats import open_slide

MOST_BYTES = 2**20


def test_the_same_seed_attacks_in_the_same_way():
    files = [hostile_files(seed, "/secret") for seed in (3, 3, 4)]
    assert files[0] == files[1] != files[2]
    requests = [[*malformed_requests(seed, 200, 80)] for seed in (3, 3, 4)]
    assert requests[0] == requests[1] != requests[2]
    assert len({*requests[0]}) > 150
    bodies = [[nonsense(Random(f"{seed} {number}")) for number in range(50)] for seed in (3, 3, 4)]
    assert bodies[0] == bodies[1] != bodies[2]


def test_hostile_files_are_small_and_promise_much():
    files = hostile_files(1, "/secret")
    assert max(len(content) for content in files.values()) < MOST_BYTES
    page = tifffile.TiffFile(io.BytesIO(files["sparse TIFF"])).pages[0]
    assert page.shape == (262_144, 262_144, 3)
    assert sum(page.databytecounts) == 0
    assert struct.unpack(">II", png_bomb()[16:24]) == (60_000, 60_000)
    assert tifffile.TiffFile(io.BytesIO(tiff_bomb())).pages[0].rowsperstrip == 30_000
    assert b"ImageFile=/secret\n" in vms("/secret")


def test_the_private_picture_can_be_seen_by_whoever_is_let(tmp_path):
    # Otherwise the attack would prove nothing.
    pytest.importorskip("openslide")
    (tmp_path / "own.jpg").write_bytes(picture(1))
    shown = open_slide(tmp_path / "own.jpg").read(0, 0, 256, 256, 0)
    assert np.abs(shown.astype(int) - np.asarray(Image.open(tmp_path / "own.jpg"))).max() <= 2


def test_the_table_says_what_did_not_hold_and_the_end_is_one():
    held = Finding("a", "it holds", tries=1200, seen="all refused")
    broken = Finding("b", "it holds", tries=3, faults=["it broke", "again"])
    skipped = Finding("c", "it holds", skipped="no disk could be mounted")
    text = table([held, broken, skipped])
    assert "| a | 1,200 | it holds | all refused |" in text
    assert "| b | 3 | it holds | **it broke** (and 1 more) |" in text
    assert "| c | 0 | it holds | not tried: no disk could be mounted |" in text
    assert [exit_code(each) for each in ([held], [held, skipped], [held, broken])] == [0, 0, 1]


def test_what_is_planted_is_there_and_the_private_files_are_seen_to_change(tmp_path):
    for number, (name, plant) in enumerate((*PLANTS,)):
        if plant in (many_corrections, strange_names) or "npz" in name:
            continue
        out, outside = tmp_path / str(number) / "out", tmp_path / str(number) / "outside"
        for folder in (out / "slide" / ".ntrm", outside):
            folder.mkdir(parents=True)
        for file in ("slide/slide.jpg", "slide/.ntrm/done.json", "../outside/secret"):
            (out / file).write_bytes(b"sound")
        before, private = digest(out), digest(outside)
        plant(out, outside)
        assert digest(out) != before, name
        assert digest(outside) == private, name
    (outside / "secret").write_bytes(b"other")
    assert digest(outside) != private
