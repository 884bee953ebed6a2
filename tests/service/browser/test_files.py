"""The page's files: what is vendored is what it claims to be, and nothing needs a looser security policy."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import ntrm

PAGE = Path(ntrm.__file__).parent / "service" / "page"
OURS = sorted(path for path in PAGE.rglob("*") if path.is_file() and "vendor" not in path.parts)
MANIFESTS = sorted(PAGE.glob("vendor/*/vendor.json"))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_vendored_files_are_the_published_ones(manifest):
    stated = json.loads(manifest.read_text(encoding="utf-8"))
    there = {path.name for path in manifest.parent.iterdir()} - {manifest.name}

    assert there == set(stated["sha256"])
    assert "LICENSE.txt" in there
    for name, expected in stated["sha256"].items():
        assert hashlib.sha256((manifest.parent / name).read_bytes()).hexdigest() == expected
    assert stated["version"] in (manifest.parent / f"{stated['name']}.min.js").read_text(encoding="utf-8")[:200]


def test_everything_vendored_has_a_manifest():
    assert {path.parent for path in MANIFESTS} == set((PAGE / "vendor").iterdir())


@pytest.mark.parametrize("path", [path for path in OURS if path.suffix == ".html"], ids=lambda path: path.name)
def test_pages_hold_no_inline_script_or_style(path):
    text = path.read_text(encoding="utf-8")

    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", text) == []


def test_nothing_is_fetched_from_elsewhere():
    addresses = {
        (path.name, found)
        for path in OURS
        for found in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text(encoding="utf-8"))
    }

    assert {pair for pair in addresses if not pair[1].endswith("www.w3.org")} == set()


def test_scripts_never_make_markup_or_code_from_text():
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style"
    found = [
        (path.name, match)
        for path in OURS
        if path.suffix == ".js"
        for match in re.findall(forbidden, path.read_text(encoding="utf-8"))
    ]

    assert found == []


def test_files_that_are_named_are_there():
    missing = []
    for path in OURS:
        text = path.read_text(encoding="utf-8")
        named = re.findall(r"(?:src|href)=\"/page/([^\"]+)\"", text) if path.suffix == ".html" else []
        imported = re.findall(r"from \"\./([\w.-]+)\"", text) if path.suffix == ".js" else []
        missing += [name for name in named if not (PAGE / name).is_file()]
        missing += [name for name in imported if not (path.parent / name).is_file()]

    assert missing == []


@pytest.mark.parametrize("path", [path for path in OURS if path.suffix in (".js", ".css")], ids=lambda path: path.name)
def test_files_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
