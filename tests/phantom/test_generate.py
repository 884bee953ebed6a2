"""A phantom dataset: its plan, its files, and how a run that was interrupted goes on."""

import contextlib
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import PARTIAL
from ntrm.data.check import check_dataset
from ntrm.data.layouts import SKIN_SECTIONS
from ntrm.phantom.generate import PhantomOptions, cancer_quotas, plan_sections, write_phantom


@given(st.integers(1, 1000))
def test_quotas_share_everything_out_in_the_real_ratio(count):
    quotas = cancer_quotas(count)
    assert sum(quotas.values()) == count
    for cancer, share in SKIN_SECTIONS.items():
        assert abs(quotas[cancer] - count * share / 290) < 1


@given(st.integers(1, 80), st.integers(0, 2**32))
def test_patients_have_one_to_three_sections_of_one_cancer_and_one_split(count, seed):
    plan = plan_sections(count, seed)
    by_patient = defaultdict(list)
    for section in plan:
        by_patient[section.patient].append(section)
    assert len({section.name for section in plan}) == count
    assert len({section.seed for section in plan}) == count
    for sections in by_patient.values():
        assert 1 <= len(sections) <= 3
        assert len({(s.cancer, s.split, s.laboratory) for s in sections}) == 1


def test_the_real_number_of_sections_gives_the_real_numbers(seed):
    plan = plan_sections(290, seed)
    assert Counter(s.cancer for s in plan) == SKIN_SECTIONS
    splits = Counter(s.split for s in plan)
    assert abs(splits["train"] - 203) <= 9
    assert min(splits["val"], splits["test"]) >= 35
    assert len({s.laboratory for s in plan}) == 5


@given(st.integers(1, 80), st.floats(0, 1))
def test_the_share_of_normal_sections_is_kept_and_the_others_are_in_the_real_ratio(count, share):
    plan = plan_sections(count, 1, share)
    cancers = Counter(section.cancer for section in plan)
    assert len(plan) == count
    assert abs(cancers.pop("none", 0) - share * count) <= 0.5
    assert cancers == {name: quota for name, quota in cancer_quotas(sum(cancers.values())).items() if quota}


def test_sections_with_a_cancer_are_the_same_beside_normal_ones(seed):
    alone, beside = plan_sections(20, seed), plan_sections(30, seed, normal=1 / 3)
    assert [(s.name, s.patient, s.seed) for s in alone] == [(s.name, s.patient, s.seed) for s in beside[:20]]
    assert {s.name.split("_")[0] for s in beside[20:]} == {"NORMAL"}


SEED = 22  # Of small sections
OPTIONS = PhantomOptions(4, seed=SEED)


def bytes_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def phantom(tmp_path_factory) -> Path:
    """Four sections, drawn by one process."""
    out = tmp_path_factory.mktemp("phantom") / "one"
    write_phantom(out, OPTIONS)
    return out


def test_it_is_a_clean_dataset_with_cases_and_truth(phantom):
    report = check_dataset(phantom)
    assert report.clean, report.faults
    with tifffile.TiffFile(phantom / "10x" / "Images" / "BCC_1.tif") as tif:
        numerator, denominator = tif.pages[0].tags["XResolution"].value
        assert tif.pages[0].tags["ResolutionUnit"].value == 3
        assert 1e4 / (numerator / denominator) == pytest.approx(6.7, rel=1e-6)
    with (phantom / "cases.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    truth = json.loads((phantom / "truth.json").read_text())
    assert [row["name"] for row in rows] == list(truth["sections"]) == ["BCC_1", "BCC_2", "IEC_1", "SCC_1"]
    for row in rows:
        section = truth["sections"][row["name"]]
        assert row["cancer"] in section["cancers"]
        assert section["patient"] == row["group"]
        (piece,) = section["pieces"]
        for value, reason in (("surface_deg", "surface"), ("clearance_um", "clearance"), ("depth_um", "depth")):
            assert (piece[value] is None) == bool(piece[f"{reason}_reason"])
            assert piece[value] is None or piece[value] >= 0


def test_half_of_it_may_be_normal_skin_of_version_2(tmp_path):
    words = ["phantom", str(tmp_path / "skin"), "--sections", "2", "--seed", str(SEED), "--normal", "0.5"]
    ended = CliRunner().invoke(app, [*words, "--phantom-version", "2", "--jobs", "1", "--json"])
    report = json.loads(ended.stdout)
    assert (report["version"], report["normal"], report["normal_sections"]) == ("2", 0.5, 1)
    assert check_dataset(tmp_path / "skin").clean
    truth = json.loads((tmp_path / "skin" / "truth.json").read_text())
    assert (truth["options"]["version"], truth["options"]["normal"]) == ("2", 0.5)
    section = truth["sections"]["NORMAL_1"]
    assert (section["filed_under"], section["cancers"]) == ("none", [])
    assert section["pieces"][0]["depth_reason"] == "no tumour in the section"
    with (tmp_path / "skin" / "cases.csv").open() as stream:
        assert {row["name"]: row["cancer"] for row in csv.DictReader(stream)} == {"BCC_1": "BCC", "NORMAL_1": "none"}


def test_a_second_run_draws_what_was_lost_and_other_options_and_files_are_refused(phantom, tmp_path):
    before = bytes_of(phantom)
    assert write_phantom(phantom, OPTIONS).drawn == 0
    (phantom / "10x" / "Masks" / "IEC_1.png").unlink()
    assert write_phantom(phantom, OPTIONS).drawn == 1
    with pytest.raises(RefusedError, match="other options"):
        write_phantom(phantom, PhantomOptions(4, seed=SEED + 1))
    assert bytes_of(phantom) == before
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RefusedError, match="no phantom"):
        write_phantom(tmp_path, PhantomOptions(1))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def kill_half_way(command, notes):
    """Kill a drawing that has finished some of its sections; returns whether it was still at work."""
    run = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 600
    while run.poll() is None and not (notes.exists() and any(notes.glob("*.json"))):
        assert time.monotonic() < deadline, "nothing was finished within ten minutes"
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    code = run.wait()
    assert code in (0, -signal.SIGKILL)
    return code != 0 and any(notes.glob("*.json"))


@pytest.mark.slow
def test_killed_half_way_it_leaves_no_half_section_and_goes_on(phantom, tmp_path):
    """Two processes until they are killed, one afterwards and for the fixture: their bytes are the same."""
    out = tmp_path / "killed"
    words = ["phantom", str(out), "--sections", "4", "--seed", str(SEED), "--quiet", "--jobs"]
    while not kill_half_way([sys.executable, "-m", "ntrm", *words, "2"], out / ".progress"):
        shutil.rmtree(out)  # it was done before it could be killed
    whole = bytes_of(phantom)
    for name, digest in bytes_of(out).items():
        if PARTIAL not in name and not name.startswith((".progress", "phantom.json")):
            assert whole[name] == digest
    assert CliRunner().invoke(app, [*words, "1"]).exit_code == 0
    assert bytes_of(out) == whole


@pytest.mark.parametrize("content", [b"{", b'{"sections": 3}'])
def test_what_damaged_notes_say_is_drawn_again(phantom, tmp_path, content):
    out, before = tmp_path / "out", bytes_of(phantom)
    shutil.copytree(phantom, out)
    (out / "truth.json").write_bytes(content)
    (out / ".progress").mkdir()
    for name in [path.stem for path in (out / "10x" / "Masks").iterdir()][1:]:
        truth = json.loads((phantom / "truth.json").read_text())["sections"][name]
        (out / ".progress" / f"{name}.json").write_text(json.dumps(truth))
    assert write_phantom(out, OPTIONS).drawn == 1
    assert bytes_of(out) == before
    (out / "phantom.json").write_bytes(content)
    with pytest.raises(RefusedError, match="other options"):
        write_phantom(out, OPTIONS)


@pytest.mark.parametrize(
    "wrong", [{"sections": 0}, {"levels": ("3x",)}, {"ambiguity": 1.5}, {"normal": 1.1}, {"version": "0"}, {"seed": -1}]
)
def test_impossible_options_are_refused(wrong):
    with pytest.raises(UsageError):
        PhantomOptions(**{"sections": 1, **wrong})
