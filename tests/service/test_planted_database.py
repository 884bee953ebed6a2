"""A results folder from a stranger whose ``.service`` was made to harm: the service is started over it."""

import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.helpers import wait_for
from tests.service.small import error_of, only_slide, serving, settings_of

from ntrm.core.errors import NtrmError
from ntrm.service.api import app_state
from ntrm.service.core.settings import DATABASE, INCOMING, SERVICE_FOLDER, TRASH, UPLOADS

pytestmark = pytest.mark.usefixtures("quick_readers")
KEY = "1" * 24


@pytest.fixture
def out(tmp_path, shown):
    """Results that a service has shown, with a folder that no service may touch beside them."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.txt").write_text("years of work")
    return shown


@pytest.fixture
def unharmed(tmp_path, out):
    """Checks at the end that nothing beside the results has changed."""

    def state():
        places = [path for path in tmp_path.rglob("*") if not path.is_relative_to(out) and path.is_file()]
        return {path: path.read_bytes() for path in places}

    before = state()
    yield
    assert state() == before


def change(out, sql, *values):
    with closing(sqlite3.connect(out / SERVICE_FOLDER / DATABASE)) as database, database:
        database.execute(sql, values)


def plant(out, key=KEY, **cells):
    """Rows like those of the slide that is there, but for some cells."""
    with closing(sqlite3.connect(out / SERVICE_FOLDER / DATABASE)) as database, database:
        database.row_factory = sqlite3.Row
        for table, own in (("slides", {"id": key, "slide_id": key}), ("jobs", {"slide": cells.get("id", key)})):
            row = dict(database.execute(f"SELECT * FROM {table}").fetchone()) | own
            row |= {name: cell for name, cell in cells.items() if name in row}
            database.execute(
                f"INSERT INTO {table} ({','.join(row)}) VALUES ({','.join('?' * len(row))})", [*row.values()]
            )


def names(client):
    answer = client.get("/v1/slides")
    assert answer.status_code == 200, answer.text
    return sorted(slide["slide_id"] for slide in answer.json()["slides"])


@pytest.mark.parametrize("origin", ["upload", "path", "found"])
def test_an_original_is_shown_only_where_a_root_is_today(tmp_path, model, out, results, origin):
    path, _ = results
    plant(out, source=os.fsencode(path), origin=origin, slide_id="b", fingerprint=None, status="failed")
    for roots, status in (((), 404), ((tmp_path / "victim",), 404), ((path.parent,), 200)):
        before = shutil.copytree(out, tmp_path / f"out-{len(roots)}-{status}")
        with serving(settings_of(before, model, roots=roots)) as client:
            # Without it, an upload that was never segmented is nothing at all.
            assert client.get(f"/v1/slides/{KEY}").json().get("has_image", False) == (status == 200)
            for what in ("tiles/slide/0/0_0.jpg", "thumbnail.jpg"):
                assert client.get(f"/v1/slides/{KEY}/{what}").status_code == status
    linked = tmp_path / "root"
    linked.mkdir()
    (linked / "link.tif").symlink_to(path)
    change(out, "UPDATE slides SET source = ? WHERE id = ?", os.fsencode(linked / "link.tif"), KEY)
    with serving(settings_of(out, model, roots=(linked,))) as client:
        assert client.get(f"/v1/slides/{KEY}/tiles/slide/0/0_0.jpg").status_code == 404


OUTSIDE = ["{}/victim", "../victim", "a/../../victim", "..", ".", "", ".service", "./a", "a/.ntrm", "vict\0im"]
BAD = [
    {"id": "../../victim/thesis.txt"}, {"id": "*"}, {"origin": "odd"}, {"created": 1e300}, {"mpp": "[0.5, Infinity]"},
    {"mpp": "[-1, 1]"}, {"area": "[]"}, {"area": "[1, 2]"}, {"area": '[0, 0, "x", 1e99]'}, {"area": "[0, 0, -1, 5]"},
    {"area": "{"}, {"area": "[" * 100_000}, {"file_mpp": "1"}, {"area": "[0, 0, 9e99, 1]"},
    {"name": "\x00" * 2**21}, {"source": b"/x\0y"},
]  # fmt: skip
BAD_JOBS = [
    {"status": "odd"}, {"worker": "../../../x"}, {"progress": 1e300}, {"attempts": 2**62}, {"finished": -1e300},
    {"error": '"x"'}, {"error": '{"what": {}}'}, {"error": "{"}, {"stage": "x" * 2**21}, {"due": -1.0},
]  # fmt: skip


@pytest.mark.usefixtures("unharmed")
def test_rows_that_no_service_writes_are_refused_and_left_as_they_are(tmp_path, model, out):
    shutil.copytree(out / SERVICE_FOLDER, out / ".aside")

    def restore():
        shutil.rmtree(out / SERVICE_FOLDER)
        shutil.copytree(out / ".aside", out / SERVICE_FOLDER)

    for cells in (*({"slide_id": name.format(tmp_path)} for name in OUTSIDE), *BAD, *BAD_JOBS):
        restore()
        plant(out, **{"origin": "upload", **cells})
        with pytest.raises(NtrmError, match="no service wrote this"), serving(settings_of(out, model)):
            pass
    restore()
    plant(out, source=b"/" + b"x" * 70_000, slide_id="b", status="failed")
    with serving(settings_of(out, model)) as client:
        assert names(client) == ["a", "b"]
        assert client.get("/healthz").json()["status"] == "ok"


def changed(*statements):
    return lambda out: [change(out, sql) for sql in statements]


def no_database(out):
    (out / SERVICE_FOLDER / DATABASE).write_bytes(b"not a database at all" * 1000)


def damaged(out):
    path = out / SERVICE_FOLDER / DATABASE
    path.write_bytes(path.read_bytes()[:4096] + os.urandom(4096) * 8)


def wrong_types(out):
    change(out, "UPDATE slides SET name = name")
    with closing(sqlite3.connect(out / SERVICE_FOLDER / DATABASE)) as database, database:
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '')")
    plant(out, created="far")
    with closing(sqlite3.connect(out / SERVICE_FOLDER / DATABASE)) as database, database:
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE type = 'table' AND sql IS NOT NULL")


TRIGGER = "CREATE TRIGGER t AFTER UPDATE ON slides BEGIN DELETE FROM slides; END"
HARM = {
    "trigger": changed(TRIGGER),
    "view": changed("ALTER TABLE slides RENAME TO hidden", "CREATE VIEW slides AS SELECT * FROM hidden"),
    "other columns": changed("ALTER TABLE slides ADD COLUMN more TEXT"),
    "no database": no_database,
    "damaged": damaged,
    "wrong types": wrong_types,
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.usefixtures("unharmed")
def test_a_database_that_is_not_ours_is_refused_and_left_as_it_is(model, out, harm):
    HARM[harm](out)
    before = (out / SERVICE_FOLDER / DATABASE).read_bytes()
    with pytest.raises(NtrmError, match="cannot use") as caught, serving(settings_of(out, model)):
        pass
    assert "move it away" in caught.value.hint
    assert (out / SERVICE_FOLDER / DATABASE).read_bytes() == before
    (out / SERVICE_FOLDER / DATABASE).unlink()
    with serving(settings_of(out, model)) as client:
        assert names(client) == ["a"]


@pytest.mark.usefixtures("unharmed")
def test_a_journal_that_names_a_file_to_delete_is_not_carried_out(tmp_path, model, out):
    path = out / SERVICE_FOLDER / DATABASE
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
        database.execute("PRAGMA cache_size=1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE slides SET name = 'x'")
        database.execute("CREATE TABLE filler AS SELECT randomblob(100000)")
        planted = path.read_bytes(), path.with_name(f"{DATABASE}-journal").read_bytes()
        database.execute("ROLLBACK")
    # What SQLite appends where several databases are written together: the file that is deleted at the end.
    target = os.fsencode(tmp_path / "victim" / "thesis.txt")
    numbers = (0x40000000 // 4096 + 1, len(target), sum(target))
    page, length, checksum = (number.to_bytes(4, "big") for number in numbers)
    name = page + target + length + checksum + bytes.fromhex("d9d505f920a163d7")
    path.write_bytes(planted[0])
    path.with_name(f"{DATABASE}-journal").write_bytes(planted[1] + name)
    with pytest.raises(NtrmError, match="cannot use"), serving(settings_of(out, model)):
        pass


LINKS = [
    "", UPLOADS, INCOMING, TRASH, DATABASE, f"{DATABASE}-wal", "audit.jsonl", "audit.lock",
    "worker.log", "server.lock", f"{UPLOADS}/{KEY}", f"{INCOMING}/x",
]  # fmt: skip


@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.usefixtures("unharmed")
def test_a_link_in_the_services_folder_is_refused(tmp_path, model, out, what):
    hidden, aside = out / SERVICE_FOLDER, out / ".aside"
    shutil.copytree(hidden, aside)
    for name in LINKS:
        shutil.rmtree(hidden)
        shutil.copytree(aside, hidden)
        place = hidden / name
        if place.is_dir():
            shutil.rmtree(place)
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(tmp_path / "victim" / ("" if what == "folder" else "thesis.txt"))
        with pytest.raises(NtrmError, match="not the program's own") as caught, serving(settings_of(out, model)):
            pass
        assert "move .service away" in caught.value.hint
        place.unlink()
        hidden.mkdir(exist_ok=True)


def test_what_others_could_open_is_closed_to_them(model, out):
    (out / SERVICE_FOLDER).chmod(0o777)
    with serving(settings_of(out, model)) as client:
        assert names(client) == ["a"]
    assert (out / SERVICE_FOLDER).stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", DATABASE, TRASH])
def test_what_belongs_to_somebody_else_is_refused(model, out, name):
    os.chown(out / SERVICE_FOLDER / name, 12345, -1)
    with pytest.raises(NtrmError, match="not the program's own"), serving(settings_of(out, model)):
        pass


def test_a_slide_that_is_a_link_is_not_deleted_through_it(tmp_path, model, out):
    shutil.copytree(out / "a", tmp_path / "victim" / "a")
    plant(out, slide_id="b")
    (out / "b").symlink_to(tmp_path / "victim" / "a")
    before = sorted(path for path in (tmp_path / "victim").rglob("*"))
    with serving(settings_of(out, model)) as client:
        assert client.delete(f"/v1/slides/{KEY}").status_code in (204, 404)
        assert names(client) == ["a"]
    assert sorted(path for path in (tmp_path / "victim").rglob("*")) == before


def strange_name(folder):
    folder.rename(folder.parent / os.fsdecode(b"caf\xe9"))


def a_link(folder):
    folder.symlink_to(folder.rename(folder.parents[1] / "moved"))


def other_case(folder):
    folder.rename(folder.with_name("A"))


def lone_surrogate(folder, name, key):
    path = folder / name
    document = json.loads(path.read_text())
    target = document.get("plan", document)
    target[key] = ["\ud800"] if isinstance(target[key], list) else "\ud800"
    path.write_text(json.dumps(document))


ODD = {
    "no UTF-8": strange_name,
    "other case": other_case,
    "a link": a_link,
    "surrogate in done.json": lambda folder: lone_surrogate(folder, ".ntrm/done.json", "source"),
    "surrogate in summary.json": lambda folder: lone_surrogate(folder, "summary.json", "warnings"),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_folder_is_skipped_and_told_and_the_rest_is_looked_after(tmp_path, model, out, odd, caplog, monkeypatch):
    monkeypatch.setattr(app_state, "CHORE_SECONDS", 0.05)
    with serving(settings_of(out, model)) as client:
        (tmp_path / "aside").mkdir()
        ODD[odd](shutil.copytree(out / "a", tmp_path / "aside" / "odd"))
        for path in (tmp_path / "aside").iterdir():
            path.rename(out / path.name)
        wait_for("the folder to be told", lambda: "skipped" in caplog.text or "not looked at" in caplog.text)
        looked_after(client, out, out / "a")
    with serving(settings_of(out, model)) as client:
        looked_after(client, out, out / "a")


def looked_after(client, out, sound):
    """Whether what is done from time to time still is."""
    shutil.copytree(sound, out / "new")
    wait_for("a new folder to be shown", lambda: "new" in names(client))
    assert client.get("/healthz").json()["status"] == "ok"
    keys = {slide["slide_id"]: slide["id"] for slide in client.get("/v1/slides").json()["slides"]}
    assert client.delete(f"/v1/slides/{keys['new']}").status_code == 204
    assert not (out / "new").exists()
    assert len(names(client)) == 1


def test_results_that_become_unusable_are_shown_without_them(tmp_path, model, out, caplog, monkeypatch):
    monkeypatch.setattr(app_state, "CHORE_SECONDS", 0.05)
    sound = shutil.copytree(out / "a", tmp_path / "sound")
    with serving(settings_of(out, model)) as client:
        lone_surrogate(out / "a", "summary.json", "warnings")
        (out / "a" / "summary.json").touch()
        wait_for("the folder to be told", lambda: "skipped" in caplog.text)
        assert only_slide(client)["tissue"] == []
        looked_after(client, out, sound)


def test_what_could_not_be_removed_is_told_and_stays(model, out):
    with serving(settings_of(out, model)) as client:
        (out / SERVICE_FOLDER / TRASH).rmdir()
        url = f"/v1/slides/{only_slide(client)['id']}"
        assert error_of(client.delete(url)) == (500, "not_removed")
        assert names(client) == ["a"]
        (out / SERVICE_FOLDER / TRASH).mkdir()
        assert client.delete(url).status_code == 204
        assert not (out / "a").exists()
