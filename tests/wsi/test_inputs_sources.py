import hashlib

from ntrm.wsi.inputs import ENDS, source_fingerprint


def test_files_are_told_apart_by_size_and_either_end(tmp_path, random):
    content = bytearray(random.bytes(2 * ENDS + 1000))
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    first = source_fingerprint(path)
    ends = bytes(content[:ENDS]), bytes(content[-ENDS:])
    assert first == hashlib.sha256(str(len(content)).encode() + ends[0] + ends[1]).hexdigest()
    (tmp_path / "b.svs").write_bytes(content)
    assert source_fingerprint(tmp_path / "b.svs") == first
    for place, same in ((0, False), (len(content) - 1, False), (ENDS + 500, True)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert (source_fingerprint(path) == first) == same
    path.write_bytes(content + b"x")
    assert source_fingerprint(path) != first


def test_small_files_and_none(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert source_fingerprint(tmp_path / "empty") == hashlib.sha256(b"0").hexdigest()
    assert source_fingerprint(tmp_path / "nowhere") is None
    assert source_fingerprint(tmp_path) is None
