"""The page's files: what is vendored is what it claims to be, and nothing needs a looser security policy."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import ntrm

PAGE = Path(ntrm.__file__).parent / "service" / "page"
OURS = sorted(path for path in PAGE.rglob("*") if path.is_file() and "vendor" not in path.parts)
MANIFESTS = [folder / "vendor.json" for folder in (PAGE / "vendor").iterdir()]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_vendored_files_are_the_published_ones(manifest):
    stated = json.loads(manifest.read_text(encoding="utf-8"))
    there = {path.name for path in manifest.parent.iterdir()} - {manifest.name}

    assert there == set(stated["sha256"])
    assert "LICENSE.txt" in there
    for name, expected in stated["sha256"].items():
        assert hashlib.sha256((manifest.parent / name).read_bytes()).hexdigest() == expected
    assert stated["version"] in (manifest.parent / f"{stated['name']}.min.js").read_text(encoding="utf-8")[:200]


FORBIDDEN = {
    "inline scripts and styles": (".html", r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:"),
    "addresses elsewhere": ("", r"(?:https?:)?//(?!www\.w3\.org)[\w.-]+\.\w+"),
    "markup or code from text": (
        ".js",
        r"[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style",
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_page_needs_no_looser_policy(what):
    suffix, forbidden = FORBIDDEN[what]
    files = [path for path in OURS if path.name.endswith(suffix)]
    assert files
    assert [(path.name, found) for path in files for found in re.findall(forbidden, path.read_text("utf-8"))] == []
