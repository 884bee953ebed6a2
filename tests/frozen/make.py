"""Results of every command, to be compared before and after a change that should not change them.

python -m tests.frozen.make --out before.json        # on the commit to compare with
python -m tests.frozen.make --compare before.json    # after the change: prints what differs

Commands are run as a user types them, so that nothing here knows how they are made. They stand in ``commands.txt``.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
import tifffile
from PIL import Image
from tests.frozen.fingerprint import differences, of_content, of_folder, plain

MPP = 6.7
PATIENCE, WIDEST = 1200.0, 160
TOKEN = "a-token-for-frozen-results-0123456789"


class Work:
    """A folder in which commands are run, so that no path of this machine enters the results."""

    def __init__(self, folder):
        self.folder, self.names = folder, [(str(folder), "(folder)")]
        self.environment = {**os.environ, "NTRM_CACHE": str(folder / "cache"), "NTRM_TOKEN": TOKEN}

    def start(self, command, **options):
        program = [sys.executable, "-m", "ntrm", *command.split()]
        return subprocess.Popen(program, cwd=self.folder, env=self.environment, text=True, **options)

    def ntrm(self, command):
        """Exit code, class of the error and JSON document of a command."""
        ended = self.start(f"{command} --json --verbose", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, noted = ended.communicate(timeout=PATIENCE)
        words = [line.split(":")[0] for line in noted.splitlines() if "Error: " in line and line[0].isalpha()]
        said = plain(json.loads(said), self.names) if said.strip() else noted
        return {"exit": ended.returncode, "said": said} | ({"class": words[-1]} if words else {})

    def killed(self, how, ready, command):
        """Ends a command as soon as ``ready``."""
        process, until = self.start(command, stderr=subprocess.DEVNULL), time.monotonic() + PATIENCE
        while not ready() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(how)
        return process.wait(PATIENCE)

    def files(self, name):
        return of_folder(self.folder / name, self.names)

    def same(self, one, other):
        """Whether two folders have the same pictures, tables, pages and weights."""
        one, other = self.files(one), self.files(other)
        kept = [name for name in one if not name.endswith(("run.json", "provenance.json"))]
        return [name for name in kept if one[name] != other.get(name)] or "the same"

    def copy(self, source, target):
        shutil.copytree(self.folder / source, self.folder / target)


def read_commands():
    """The lines of each group of ``commands.txt``."""
    words, found = {}, {}
    for line in Path(__file__).with_name("commands.txt").read_text().splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif "=" in line.split(" ")[0]:
            words.update([line.split("=", 1)])
        elif line and not line.startswith("#"):
            lines.append(Template(line).substitute(words))
    return found


COMMANDS = read_commands()


class Group(NamedTuple):
    """Commands, then what they wrote; ``before`` and ``after`` are what no single command can do."""

    folder: str = ""
    needs: tuple = ()
    before: object = lambda _: None
    after: object = lambda _: ()


def write_image(path, pixels):
    """A TIFF that tells its µm/px."""
    path.parent.mkdir(parents=True, exist_ok=True)
    per_cm = 1e4 / MPP
    tifffile.imwrite(path, pixels, photometric="rgb", resolution=(per_cm, per_cm), resolutionunit="CENTIMETER")


def busiest(mask, height, width):
    """The corner of the window with most colours: there are the most tissues."""
    rows, columns = (range(0, max(1, side - part), 40) for side, part in zip(mask.shape, (height, width), strict=False))
    codes, corners = mask.astype(int) @ [1 << 16, 1 << 8, 1], [(row, column) for row in rows for column in columns]
    return max(corners, key=lambda at: len(np.unique(codes[at[0] : at[0] + height : 4, at[1] : at[1] + width : 4])))


def prepare(work):
    """Synthetic sections; windows of them as slides, and as a dataset with classes of its own."""
    said, sections = work.ntrm("phantom skin --sections 3 --seed 1"), {}
    for path in sorted((work.folder / "skin/10x/Images").iterdir()):
        image = tifffile.imread(path)
        mask = np.asarray(Image.open(work.folder / "skin/10x/Masks" / f"{path.stem}.png").convert("RGB"))
        y, x = busiest(mask, 360, 440)
        write_image(work.folder / "slides" / path.name, image[y : y + 360, x : x + 440])
        for number, (top, left) in enumerate((top, left) for top in (y, y + 180) for left in (x, x + 220)):
            window = np.s_[top : top + 180, left : left + 220]
            sections[f"{path.stem}-{number}"] = image[window], mask[window]
    small, cases = work.folder / "small", ["name,group,split,mpp"]
    for number, (name, pixels) in enumerate(sections.items()):
        for folder, each in zip(("Images", "Masks"), pixels, strict=True):
            (small / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(each).save(small / folder / f"{name}.png")
        cases.append(f"{name},patient-{number},{'val' if number % 6 == 0 else ('train', 'test')[number % 2]},{MPP}")
    colours = sorted({tuple(rgb) for _, mask in sections.values() for rgb in np.unique(mask.reshape(-1, 3), axis=0)})
    classes = [f"{index},C{index},{r},{g},{b}" for index, (r, g, b) in enumerate(colours)]
    (small / "classes.csv").write_text("\n".join(["index,name,r,g,b", *classes]) + "\n")
    (small / "cases.csv").write_text("\n".join(cases) + "\n")
    return {"phantom": said, **{name: work.files(name) for name in ("skin", "slides", "small")}}


def areas(path, *features):
    """Squares as QuPath exports them, each (class, left, top, side)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = []
    for name, left, top, side in features:
        ring = [[left, top], [left + side, top], [left + side, top + side], [left, top + side], [left, top]]
        kind = {"objectType": "annotation", "classification": {"name": name}}
        shape = {"type": "Polygon", "coordinates": [ring]}
        found.append({"type": "Feature", "geometry": shape, "properties": kind})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": found}))


def before_data(work):
    """A dataset with many faults; areas drawn on two slides."""
    work.copy("small", "faulty")
    images, masks = work.folder / "faulty/Images", work.folder / "faulty/Masks"
    names, table = sorted(path.name for path in images.iterdir()), work.folder / "faulty/cases.csv"
    (images / names[0]).write_bytes((images / names[0]).read_bytes()[:900])
    (masks / names[1]).unlink()
    Image.new("RGB", (220, 180), (1, 2, 3)).save(masks / names[2])
    Image.new("RGB", (30, 30)).save(masks / names[3])
    Image.new("L", (220, 180), 255).save(masks / names[4])
    (images / "odd name.png").write_text("no picture")
    table.write_text(table.read_text().replace(f"{MPP}", "0", 1) + "nobody,patient-1,test,6.7\n")
    areas(work.folder / "areas/BCC_1.geojson", ("RET", 20, 30, 250), ("BCC", 90, 100, 61.5))
    areas(work.folder / "areas/SCC_1.geojson", ("keratin", 5, 5, 50), ("Ignore*", 20, 20, 10))
    (work.folder / "no-masks").mkdir()


def after_train(work):
    for name, how, trained in zip(("first", "second"), (9, 15), COMMANDS["train"], strict=False):
        command = trained.replace(f"runs/{name}", f"ended/{name}") + " --resume"
        log = work.folder / "ended" / name / "log.csv"
        yield f"{name} ended", work.killed(signal.Signals(how), log.is_file, command)
        yield f"{name} continued", work.ntrm(command)["exit"]
        yield f"{name} continued, weights", work.same(f"ended/{name}/model", f"runs/{name}/model")


def before_segment(work):
    """A folder as somebody collected it, very small slides, one without tissue, a table."""
    content, pixels = (work.folder / "slides/BCC_1.tif").read_bytes(), tifffile.imread(work.folder / "slides/SCC_1.tif")
    for height, width in ((1, 1), (23, 31), (256, 256), (257, 190)):
        write_image(work.folder / f"tiny/{height}x{width}.tif", pixels[:height, 100 : 100 + width])
    write_image(work.folder / "noise.tif", np.random.default_rng(1).integers(0, 256, (300, 300, 3), dtype=np.uint8))
    (work.folder / "strange").mkdir()
    Image.fromarray(pixels).save(work.folder / "strange/no-mpp.png")
    Image.new("L", (300, 200), 240).save(work.folder / "strange/grey.png")
    for name, each in (("sound.tif", content), ("short.tif", content[:3000]), ("empty.svs", b""), ("text.png", b"no")):
        (work.folder / "strange" / name).write_bytes(each)
    table = "slide,slide_id,mpp,ward\nslides/SCC_1.tif,one,,3\nstrange/no-mpp.png,two,13.4,=1+1\n"
    (work.folder / "table.csv").write_text(table)


def after_segment(work):
    if real := os.environ.get("NTRM_REAL_DATA"):
        shutil.copytree(Path(real, "slides"), work.folder / "real")
        yield "real", work.ntrm("segment real --out real-results --device cpu --maps")
        yield "real, files", work.files("real-results")
    command, out = "segment slides --out killed --device cpu", work.folder / "killed"
    work.killed(signal.SIGKILL, lambda: any(out.glob("*/report.html")), command)
    yield "killed and started again", work.ntrm(command)["exit"]
    yield "killed and started again, files", work.same("killed", "results/plain")
    said = work.ntrm("segment slides/BCC_1.tif --out secret --pseudonymise key.csv --device cpu")
    work.names += [(path.name, "(pseudonym)") for path in (work.folder / "secret").iterdir() if path.is_dir()]
    files = work.files("secret")
    told = {name: each for name, each in files.items() if name.endswith((".csv", "summary.json", "slide.jpg"))}
    yield "pseudonyms", {"said": plain(said, work.names), "files": sorted(files), "told": told}
    work.copy("results/plain", "reported")
    for page in list((work.folder / "reported").rglob("*.html")):
        page.unlink()
    yield "report", work.ntrm("report reported")
    yield "report, files", work.same("reported", "results/plain")


def before_correct(work):
    work.copy("results/plain", "corrected")
    areas(work.folder / "drawn/SCC_1.geojson", ("INF", 100, 100, 80), ("RET", 300, 50, 41.5))


class Served:
    """``ntrm serve`` and what it answers."""

    def __init__(self, work):
        command = "serve served --root slides --port 0 --no-open --device cpu --json --quiet"
        self.process, said = work.start(command, stdout=subprocess.PIPE), ""
        while not said.endswith("}\n"):
            said += self.process.stdout.readline() or f"the service ended with {self.process.wait()}}}\n"
        self.address, self.names = json.loads(said)["address"], list(work.names)

    def ask(self, path, *, token=TOKEN):
        request = urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get_content_type(), error.read()

    def get(self, path, **more):
        """Status and what the answer says."""
        status, kind, content = self.ask(path, **more)
        ending = kind.split("/")[1].replace("geo+", "").replace("tiff", "tif").replace("jpeg", "jpg")
        return {"status": status, "kind": kind, "content": of_content(f"answer.{ending}", content, self.names)}

    def json(self, path):
        return json.loads(self.ask(path)[2])


def after_service(work):
    work.copy("corrected", "served")
    served, slides, until = Served(work), [], time.monotonic() + PATIENCE
    try:
        while not (slides and all(each["has_image"] for each in slides)) and time.monotonic() < until:
            time.sleep(0.1)
            slides = sorted(served.json("/v1/slides")["slides"], key=lambda each: each["slide_id"])
        served.names += [(each["id"], f"(id of {each['slide_id']})") for each in slides]
        yield "openapi", served.json("/openapi.json")
        for path in ("/healthz", "/v1/about", "/v1/slides?status=failed", "/v1/slides/nothing", "/v1/nothing", "/"):
            yield path, served.get(path)
        yield "wrong token", served.get("/v1/slides", token="x" * 30)
        for slide in slides:
            yield from of_slide(served, slide)
    finally:
        served.process.terminate()
        yield "exit", served.process.wait(PATIENCE)


def of_slide(served, slide):
    name, base = slide["slide_id"], f"/v1/slides/{slide['id']}"
    files = ("summary", "graph", "regions.geojson", "mask", "report", "overlay.png")
    paths = ["", *files, *(f"corrected/{each}" for each in files), "thumbnail.jpg", "familiarity.jpg", "tiles"]
    paths += ["corrections", "corrections/regions", *(f"regions/{number}" for number in (1, 2, 5, 9999))]
    points = np.random.default_rng(7).integers(-20, [slide["width"] + 20, slide["height"] + 20], (40, 2)).tolist()
    paths += [f"corrections/part?x={x}&y={y}" for x, y in points[:4]]
    top = served.json(f"{base}/tiles")["max_level"]
    for layer in ("slide", *slide["layers"], "corrected"):
        tile = "0_0.jpg" if layer == "slide" else "0_0.png?a=RET&b=HYP" if layer == "interface" else "0_0.png"
        paths += [f"tiles/{layer}/{level}/{tile}" for level in (top, top - 1, 3)]
    for path in paths:
        yield f"{name} {path}", served.get(f"{base}/{path}".rstrip("/"))
    for version in ("", f"&v={served.json(f'{base}/corrections').get('version', 0)}"):
        said = [served.json(f"{base}/at?x={x}&y={y}{version}") for x, y in points]
        yield f"{name} at {version}", plain(said, served.names)


def after_errors(work):
    """What is wrong in Python: the class of the error and its words."""
    program = f"import json, numpy, ntrm\nfound = {{}}\nfor line in {COMMANDS['python']}:\n"
    program += "    try: found[line] = repr(eval(line))\n"
    program += (
        "    except Exception as error: found[line] = [type(error).__name__, str(error)]\nprint(json.dumps(found))\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=work.folder, env=work.environment, stdout=subprocess.PIPE, check=True)
    yield "python", plain(json.loads(ended.stdout), work.names)


GROUPS = {  # a group stands behind those that it needs
    "train": Group("runs", after=after_train),
    "segment": Group("results", ("train",), before_segment, after_segment),
    "data": Group("data", before=before_data),
    "correct": Group("corrected", ("segment",), before_correct),
    "evaluate": Group("scores", ("train",)),
    "errors": Group(after=after_errors),
    "service": Group(needs=("correct",), after=after_service),
    "phantom": Group("phantom"),
}


def run_group(name, work, needed):
    """Results of one group by what they are of, once those that it needs are there."""
    _, start, group = [each.result() for each in needed], time.monotonic(), GROUPS[name]
    group.before(work)
    found = {}
    for command in COMMANDS.get(name, ()):
        found[f"{command} (again)" if command in found else command] = work.ntrm(command)
    found |= {"files": work.files(group.folder)} if group.folder else {}
    found |= dict(group.after(work))
    sys.stderr.write(f"{name}: {len(found)} results in {time.monotonic() - start:.0f} s\n")
    return found


def run(chosen, folder):
    """Results by group; two groups at a time."""
    results, wanted, futures = {"prepared": prepare(Work(folder))}, set(chosen), {}
    for name in reversed(GROUPS):
        wanted |= {*GROUPS[name].needs} if name in wanted else set()
    with ThreadPoolExecutor(2) as pool:
        for name, group in GROUPS.items():
            if name in wanted:
                needed = [futures[each] for each in group.needs]
                futures[name] = pool.submit(run_group, name, Work(folder), needed)
        return results | {name: futures[name].result() for name in chosen}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the results")
    parser.add_argument("--compare", type=Path, metavar="BEFORE", help="earlier results; exit code 1 if any differs")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, with commas between them: %(default)s")
    parser.add_argument("--folder", type=Path, help="new folder to work in, which is kept")
    asked = parser.parse_args()
    chosen = asked.only.split(",")
    if not (asked.out or asked.compare) or not set(chosen) <= set(GROUPS):
        parser.error(f"give --out or --compare, and groups among {', '.join(GROUPS)}")
    before = json.loads(asked.compare.read_text()) if asked.compare else None
    os.environ.update(OMP_NUM_THREADS="1", PYTHONUTF8="1")
    with tempfile.TemporaryDirectory(prefix="frozen-", ignore_cleanup_errors=True) as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=not asked.folder)
        results = run(chosen, folder.resolve())
    if asked.out:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")
    if before is None:
        return 0
    found = [each for name in results for each in differences(before.get(name, {}), results[name], name)]
    for place, *both in found:
        one, other = (json.dumps(each)[:WIDEST] for each in both)
        sys.stdout.write(f"{place}\n  before: {one}\n  now:    {other}\n")
    sys.stdout.write(f"{len(found)} differences\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
