import logging
import sys
from pathlib import Path

import pytest
from tests.slides.server import environment, served

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.slides.object_store import Address, NoSuchObjectError, ObjectStore, RemoteFile, is_address


@pytest.fixture
def store(bucket):
    return ObjectStore("s3")


@pytest.fixture
def at(bucket):
    return Address.parse(f"s3://{bucket.name}")


def test_objects_are_listed_with_sizes_and_versions(store, at, bucket):
    bucket.put("slides/b.svs", b"12345")
    bucket.put("slides/sub/a.svs", b"")
    bucket.put("other.svs", b"1")
    # MD5 of the content, by md5sum.
    versions = "827ccb0eea8a706c4c34a16891f84e7b", "d41d8cd98f00b204e9800998ecf8427e"
    expected = [RemoteFile("b.svs", 5, versions[0]), RemoteFile("sub/a.svs", 0, versions[1])]
    assert store.files_under(at / "slides") == expected
    assert store.stat(at / "slides/b.svs") == expected[0]
    assert store.stat(at / "slides") is None


def test_keys_that_lead_out_of_their_folder_are_left_out(store, at, bucket):
    for key in ("slides/../../evil.svs", "slides/./a.svs", "slides//b.svs", "slides/c\\d.svs", "slides/e.svs"):
        bucket.put(key, b"1")
    assert [file.name for file in store.files_under(at / "slides")] == ["e.svs"]


def test_an_object_is_created_once_and_removed_as_often_as_asked(store, at, bucket):
    assert store.create(b"first", at / "x")
    assert not store.create(b"second", at / "x")
    assert store.read(at / "x") == bucket.get("x") == b"first"
    store.remove(at / "x")
    store.remove(at / "x")
    assert store.read(at / "x") is None


def test_what_is_missing_is_told_at_once(store, at):
    for address in (at / "nothing", Address.parse("s3://no-such-bucket-here/a")):
        with pytest.raises(NoSuchObjectError, match="nothing found at") as caught:
            store.stat(address)
        assert caught.value.exit_code == 2
    with pytest.raises(NoSuchObjectError, match="bucket"):
        store.files_under(Address.parse("s3://no-such-bucket-here/a"))


def test_who_may_not_read_is_told_so(store, at, bucket):
    bucket.put("a.svs", b"1")
    bucket.deny("s3:GetObject")
    with pytest.raises(DataError, match="denied") as caught:
        store.read(at / "a.svs")
    assert "AWS_" in caught.value.hint


def test_without_credentials_nothing_is_tried(at, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(DataError, match="no credentials") as caught:
        ObjectStore("s3").read(at / "a.svs")
    assert "aws configure" in caught.value.hint


@pytest.mark.slow
def test_a_server_that_comes_back_is_found_again_and_one_that_does_not_is_told(monkeypatch):
    with served() as (server, endpoint):
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        store, at = ObjectStore("s3"), Address.parse("s3://some-bucket/Jane Doe.svs")
        assert store.read(at) is None
        server.kill()
        server.wait()
        with pytest.raises(DataError, match="does not answer") as caught:
            store.read(at)
        assert "Jane" not in caught.value.got
        with served(endpoint.rpartition(":")[2]):
            assert store.read(at) is None


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    known = pytest.importorskip("fsspec.registry")._registry
    monkeypatch.delitem(known, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UsageError, match="needs an extra") as caught:
        ObjectStore("s3")
    assert caught.value.hint == 'pip install "ntrm[cloud]"'
    with pytest.raises(UsageError, match="unknown kind of address") as caught:
        ObjectStore("s33")
    assert caught.value.hint == "did you mean s3?"


def test_storage_libraries_log_no_signed_requests(store, at, caplog):
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        store.read(at / "a")
    finally:
        logging.getLogger().setLevel(logging.WARNING)
    assert "nobody" not in caplog.text
    assert "Signature" not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:secret@bucket/a.svs",
        "s3://key@bucket/a.svs",
        "s3://bucket/a.svs?X-Amz-Signature=secret",
        "sftp://user:secret@host/a.svs",
    ],
)
def test_credentials_and_queries_are_refused_and_not_repeated(text):
    with pytest.raises(RefusedError, match="credentials") as caught:
        Address.parse(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://", "s3://bucket//a.svs", "s3://bucket/../a.svs", "s3://bucket/a\nb", "simplecache::s3://bucket/a",
        "s3://bucket/a::b", "file:///slides/a.svs", "a.svs",
    ],
)  # fmt: skip
def test_what_names_no_object_is_refused(text):
    with pytest.raises(UsageError):
        Address.parse(text)


def test_below_a_folder_is_not_beside_it():
    out = Address.parse("s3://bucket/out")
    assert Address.parse("s3://bucket/out/a.svs").lies_in(out)
    assert out.lies_in(out)
    assert not Address.parse("s3://bucket/output/a.svs").lies_in(out)
    assert not Address.parse("s3://other/out/a.svs").lies_in(out)
    assert not out.lies_in(None)


def test_an_address_that_became_a_path_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be a path"):
        is_address(Path("s3://bucket/a.svs"))
    assert not is_address(tmp_path)
    assert is_address("simplecache::s3://bucket/a")
    assert not is_address("odd:name.svs")
