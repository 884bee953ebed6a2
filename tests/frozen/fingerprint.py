"""What commands say and write, in a form that two versions of the program can compare."""

import csv
import gzip
import hashlib
import io
import json
import re

import numpy as np
import tifffile
from PIL import Image
from safetensors.numpy import load

MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?UTC|Z|[+-]\d\d:\d\d)?")
OF_THE_RUN = {
    *("seconds", "seconds_predicting", "waiting", "windows_per_second", "versions", "git", "platform"),
    *("log", "revision"),
}
"""Fields and columns that differ from run to run or from machine to machine; the last two are hashes of moments."""
INSIDE = {".ntrm", ".service", "checkpoints"}
"""Folders of the program's own state, which may change as long as what is made of it stays."""
LONGEST = 60_000  # Characters of a document that is kept as it is; of a longer one the hash is kept


def sha256(content):
    return hashlib.sha256(content).hexdigest()[:20]


def plain(value, names=()):
    """A JSON value without moments, durations and what ``names`` lists as (text, word)."""
    if isinstance(value, dict):
        return {plain(key, names): plain(each, names) for key, each in value.items() if key not in OF_THE_RUN}
    if isinstance(value, list | tuple):
        return [plain(each, names) for each in value]
    if isinstance(value, str):
        value = MOMENT.sub("(moment)", value)
        for text, word in names:
            value = value.replace(text, word)
    return value


def brief(value):
    text = json.dumps(value)
    return value if len(text) <= LONGEST else {"characters": len(text), "sha256": sha256(text.encode())}


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def array(values):
    return f"{values.dtype} {values.shape} {sha256(np.ascontiguousarray(values).tobytes())}"


def picture(content):
    with Image.open(io.BytesIO(content)) as image:
        return {"mode": image.mode, "pixels": array(np.asarray(image)), "bytes": sha256(content)}


def tiff(content):
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        levels = [array(level.asarray()) for series in file.series for level in series.levels]
        return {"levels": levels, "description": file.pages[0].description, "bytes": sha256(content)}


def weights(content):
    tensors = {name: array(values) for name, values in sorted(load(content).items())}
    return {"tensors": sha256(json.dumps(tensors).encode()), "bytes": sha256(content)}


def table(content):
    rows = csv.DictReader(io.StringIO(content.decode()))
    return [{name: number(cell) for name, cell in row.items()} for row in rows]


READERS = {
    **dict.fromkeys(("png", "jpg"), picture),
    "tif": tiff,
    "safetensors": weights,
    "npz": lambda content: {key: array(values) for key, values in np.load(io.BytesIO(content)).items()},
    **dict.fromkeys(("json", "geojson"), json.loads),
    "jsonl": lambda content: [json.loads(line) for line in content.splitlines()],
    "csv": table,
    **dict.fromkeys(("md", "yaml", "html"), bytes.decode),
}


def of_content(name, content, names=()):
    """What a file or an answer says, by the ending of its name."""
    if name.endswith(".gz"):
        name, content = name.removesuffix(".gz"), gzip.decompress(content)
    read = READERS.get(name.rpartition(".")[2], sha256)
    return brief(plain(read(content), names))


def of_folder(root, names=()):
    """``of_content`` of every file below a folder, by its path."""
    found = {}
    for path in sorted(each for each in root.rglob("*") if each.is_file()):
        place = path.relative_to(root)
        if INSIDE.isdisjoint(place.parts) and not path.name.endswith("lock"):
            found[plain(place.as_posix(), names)] = of_content(path.name, path.read_bytes(), names)
    return found


def differences(before, after, place=""):
    """Every place where two documents differ.

    >>> [*differences({"rows": [1, 2.5], "exit": 0}, {"rows": [1, 2.0], "exit": 0})]
    [('/rows/1', 2.5, 2.0)]
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from differences(before.get(key, "(absent)"), after.get(key, "(absent)"), f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{place}/{index}")
    elif json.dumps(before) != json.dumps(after):  # as text, because NaN does not equal itself
        yield place, before, after
