"""Slides and results in object storage: the same results as from and in folders, and the same resumption."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.small import ByColour
from tests.segment.small import fingerprints, paint, run, write_slide
from tests.slides.server import SECRET
from typer.testing import CliRunner

import ntrm
from ntrm.cli.main import app
from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.processes import module_environment
from ntrm.models.registry import ARCHITECTURES
from ntrm.results.paths import SOURCE
from ntrm.segment import file_transfer
from ntrm.slides.object_store import ObjectStore

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two small slides in a folder."""
    folder, random = tmp_path_factory.mktemp("local") / "slides", np.random.default_rng(4)
    for name in ("a", "b"):
        write_slide(folder / f"{name}.tif", paint(random))
    return folder


@pytest.fixture(scope="module")
def expected(local, quick_readers):
    """Hashes of their results in a folder."""
    run(local, local.parent / "results")
    return fingerprints(local.parent / "results")


@pytest.fixture
def slides(bucket, local):
    """The same slides in the bucket."""
    for path in local.iterdir():
        bucket.put(f"slides/{path.name}", path)
    return f"s3://{bucket.name}/slides"


def statuses(found):
    return [slide.status for slide in found.slides]


def downloaded(bucket, tmp_path, name="out"):
    """Hashes of the results in the bucket, but for the mark of the slide's objects, which a folder has no use for."""
    found = fingerprints(bucket.download("out", tmp_path / "downloaded" / name))
    return {path: digest for path, digest in found.items() if not path.endswith(SOURCE)}


def test_results_at_an_address_are_those_in_a_folder_byte_for_byte(bucket, slides, local, tmp_path):
    run(local, tmp_path / "local", zarr=True)
    found = run(slides, f"s3://{bucket.name}/out", zarr=True)
    assert (statuses(found), found.exit_code) == (["done", "done"], 0)
    assert found.as_dict()["out"] == f"s3://{bucket.name}/out"
    assert downloaded(bucket, tmp_path) == fingerprints(tmp_path / "local")
    assert len(ntrm.read_results(tmp_path / "downloaded" / "out").slides) == 2
    run(slides, tmp_path / "fetched", zarr=True)
    fetched = fingerprints(tmp_path / "fetched")
    assert {key: value for key, value in fetched.items() if SOURCE not in key} == fingerprints(tmp_path / "local")
    # Nothing that was sent stays here but locks.
    assert [path for path in found.out.rglob("*") if path.is_file() and "lock" not in path.name] == [
        found.out / "run.json"
    ]


def test_another_machine_keeps_what_is_done_and_fetches_no_slide_of_it(bucket, slides, expected, tmp_path, monkeypatch):
    out = f"s3://{bucket.name}/out"
    assert statuses(run(slides, out, shard="1/2", cache=tmp_path / "one")) == ["done"]
    fetched = []
    real = ObjectStore.fetch
    monkeypatch.setattr(ObjectStore, "fetch", lambda *given: (fetched.append(given[1].name), real(*given)))
    again = run(slides, out, cache=tmp_path / "two")
    assert statuses(again) == ["kept", "done"]
    assert [name for name in fetched if name.endswith("a.tif")] == []
    before = downloaded(bucket, tmp_path)
    assert before == expected
    assert statuses(run(slides, out, cache=tmp_path / "three")) == ["kept", "kept"]
    assert downloaded(bucket, tmp_path, "again") == before


def test_a_slide_that_was_replaced_is_refused_and_other_options_do_not_mix(bucket, slides, local, tmp_path, random):
    out = f"s3://{bucket.name}/out"
    run(slides, out)
    with pytest.raises(RefusedError, match="another run"):
        run(slides, out, batch=3, cache=tmp_path / "other")
    bucket.put("slides/a.tif", write_slide(tmp_path / "new.tif", paint(random, width=140)))
    refused = run(slides, out, cache=tmp_path / "another")
    assert statuses(refused) == ["failed", "kept"]
    assert "another file" in refused.slides[0].reason
    assert "failed" not in bucket.get("out/slides.csv").decode(), "what is finished stays in the tables"
    bucket.put("slides/a.tif", local / "a.tif")
    bucket.put("out/a/.ntrm/failed.json", b"of an attempt before it was finished")
    assert statuses(run(slides, out)) == ["kept", "kept"]
    assert "out/a/.ntrm/failed.json" not in bucket.keys("out/a")
    assert "failed" not in bucket.get("out/slides.csv").decode()


def test_two_machines_may_begin_the_same_results_at_the_same_time(bucket, slides, tmp_path, monkeypatch):
    out, read = f"s3://{bucket.name}/out", ObjectStore.read

    def too_early(store, address):
        missing = read(store, address)
        monkeypatch.setattr(ObjectStore, "read", read)
        assert statuses(run(f"{slides}/a.tif", out, cache=tmp_path / "one")) == ["done"]
        return missing

    monkeypatch.setattr(ObjectStore, "read", too_early)
    assert statuses(run(slides, out, cache=tmp_path / "two")) == ["kept", "done"]
    bucket.put("other/letter.txt", b"not ours")
    with pytest.raises(RefusedError, match="is not empty and holds no results"):
        run(slides, f"s3://{bucket.name}/other")


def test_a_slide_deleted_at_the_address_is_made_anew_whatever_was_known_of_it(bucket, slides, tmp_path):
    out = f"s3://{bucket.name}/out"
    run(slides, out)
    before = downloaded(bucket, tmp_path)
    refused = run(slides, out, mpp=3.0)
    assert statuses(refused) == ["failed", "failed"]
    assert "or delete a" in refused.slides[0].reason
    for key in bucket.keys("out/a"):
        bucket.delete(key)
    assert statuses(run(slides, out)) == ["done", "kept"]
    assert downloaded(bucket, tmp_path, "again") == before


def test_what_cannot_be_fetched_is_told_and_the_others_go_on(bucket, slides, local, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text(f"slide,slide_id\n{slides}/a.tif,a\n{slides}/Jane Doe.tif,n\n")
    found = run(table, tmp_path / "out")
    assert statuses(found) == ["done", "failed"]
    assert found.slides[1].reason.startswith("nothing found at n")
    bucket.deny("s3:GetObject")
    denied = run(f"{slides}/b.tif", tmp_path / "denied")
    assert "denied" in denied.slides[0].reason
    with pytest.raises(UsageError, match="bucket"):
        run(f"{slides}/b.tif", "s3://there-is-no-such-bucket/out")
    with pytest.raises(DataError, match="denied"):
        run(local, f"s3://{bucket.name}/out")


def test_results_that_could_not_be_sent_are_sent_by_the_next_run(bucket, slides, expected, tmp_path, monkeypatch):
    out = f"s3://{bucket.name}/out"
    real = ObjectStore.send

    def broken(self, file, address):
        if address.name == "graph.json":
            raise DataError(f"the storage of {address} does not answer")
        real(self, file, address)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "send", broken)
        assert statuses(run(slides, out)) == ["failed", "failed"]
    assert not [key for key in bucket.keys("out") if key.endswith("done.json")]
    assert "does not answer" in bucket.get("out/slides.csv").decode()
    assert statuses(run(slides, out)) == ["kept", "kept"]
    assert downloaded(bucket, tmp_path) == expected


def test_the_tables_that_are_sent_last_tell_every_slide(bucket, slides, expected, tmp_path, monkeypatch):
    """Another machine sends a slide, and the tables with it, while tables without it are made."""
    out, tabulate = f"s3://{bucket.name}/out", file_transfer.tabulate

    def slow(*given, **more):
        monkeypatch.setattr(file_transfer, "tabulate", tabulate)
        notes = tabulate(*given, **more)
        assert statuses(run(f"{slides}/b.tif", out, cache=tmp_path / "two")) == ["done"]
        return notes

    monkeypatch.setattr(file_transfer, "tabulate", slow)
    run(f"{slides}/a.tif", out, cache=tmp_path / "one")
    assert downloaded(bucket, tmp_path) == expected


KILLED = """
import os, signal, sys
from tests.evaluation.small import ByColour
from tests.segment.small import InProcess
from ntrm.slides import isolated
from ntrm.segment.batch import segment_slides
from ntrm.slides.object_store import ObjectStore

def dying(function):
    def wrapped(*given):
        global times
        times -= 1
        if times < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given)
    return wrapped

isolated.ReadingProcess = InProcess
slides, out, cache, moment = sys.argv[1:]
times = int(moment)
ObjectStore.fetch, ObjectStore.send = dying(ObjectStore.fetch), dying(ObjectStore.send)
segment_slides(slides, out=out, model=ByColour(), device="cpu", batch=2, cache=cache)
"""


def test_killed_at_any_transfer_another_machine_ends_with_the_same_bytes(
    bucket, slides, expected, tmp_path, random, forks
):
    out = f"s3://{bucket.name}/out"
    # A slide is one fetch and eleven sends; every attempt has a cache of its own, as another machine would.
    moments = sorted(int(moment) for moment in random.choice(np.arange(24), 4, replace=False))
    ended = [forks.run(KILLED, slides, out, tmp_path / "caches" / str(moment), moment) for moment in moments]
    assert ended[0].status == -signal.SIGKILL, ended[0].errors
    finished = {key.split("/")[1] for key in bucket.keys("out") if key.endswith("done.json")}
    found = run(slides, out, cache=tmp_path / "last")
    assert {slide.slide_id for slide in found.slides if slide.status == "kept"} == finished
    assert downloaded(bucket, tmp_path) == expected, moments


def test_secrets_reach_no_file_no_child_and_no_word(bucket, slides, tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().describe(name="mine").save_pretrained(tmp_path / "model")
    words = ["segment", slides, "--model", str(tmp_path / "model"), "--out", f"s3://{bucket.name}/out", "-v"]
    said = CliRunner().invoke(app, [*words, "--progress", "none", "--device", "cpu"])
    assert said.exit_code == 0, said.output
    assert f"written: s3://{bucket.name}/out" in said.output
    assert SECRET not in said.output
    bucket.download("out", tmp_path / "out")
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in json.dumps(module_environment())


def test_a_slide_keeps_its_id_when_another_of_its_name_is_added(bucket, slides, tmp_path, random):
    out = f"s3://{bucket.name}/out"
    run(f"{slides}/a.tif", out, cache=tmp_path / "one")
    bucket.put("others/a.tif", write_slide(tmp_path / "other.tif", paint(random, width=140)))
    both = [f"s3://{bucket.name}/others/a.tif", f"{slides}/a.tif"]
    second, first = run(both, out, cache=tmp_path / "two").slides
    assert (first.slide_id, first.status, second.status) == ("a", "kept", "done")
    assert len(bucket.get("out/slides.csv").decode().splitlines()) == 3
    assert statuses(run(both[::-1], out)) == ["kept", "kept"]


def test_pseudonyms_are_not_mixed_with_other_names_at_an_address(bucket, slides, tmp_path):
    out, key = f"s3://{bucket.name}/out", tmp_path / "key.csv"
    hidden = run(f"{slides}/a.tif", out, pseudonymise=key)
    assert statuses(run(slides, out, pseudonymise=key, cache=tmp_path / "other")) == ["kept", "done"]
    with pytest.raises(RefusedError, match=r"names that another.csv does not contain") as refused:
        run(slides, out, pseudonymise=tmp_path / "another.csv")
    assert refused.value.got == "2 slides"
    assert {slide.slide_id for slide in hidden.slides} < set(key.read_text().replace(",", "\n").split())
    assert not (tmp_path / "another.csv").exists()


def test_keys_and_caches_are_paths(bucket, slides, tmp_path):
    for more in ({"pseudonymise": "s3://bucket/key.csv"}, {"cache": "s3://bucket/cache"}):
        with pytest.raises(UsageError, match="on a disk of this machine"):
            run(slides, tmp_path / "out", **more)
    with pytest.raises(UsageError, match="cannot be a path"):
        run(Path(slides), tmp_path / "out")
    with pytest.raises(RefusedError, match="credentials"):
        run(slides, "s3://key:secret@bucket/out")
