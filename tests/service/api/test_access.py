import http.cookies

import pytest
from starlette.testclient import TestClient
from tests.service.small import BEARER, HOST, TOKEN, error_of, serving, settings_of

from ntrm.core.errors import RefusedError
from ntrm.service.api import access
from ntrm.service.api.access import HEADERS
from ntrm.service.api.app import create_app
from ntrm.service.core.settings import ServiceSettings

pytestmark = pytest.mark.usefixtures("quick_readers")

WRONG = [
    "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN,
    f"Bearer {TOKEN.upper()}", "Bearer \xff", f"Token {TOKEN}", "Bearer " + "a" * 5000,
]  # fmt: skip


@pytest.fixture
def client(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model), authorised=False) as client:
        yield client


def sign_in(client):
    answer = client.get(f"/open/{client.app_state.access.new_code()}")
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0;url=/")
    return answer


def test_without_a_token_nothing_but_health_and_the_page_files_is_shown(client):
    assert client.get("/healthz").json()["status"] == "ok"
    closed = [path for path in client.app.openapi()["paths"] if path != "/healthz"]
    assert len(closed) > 10
    for path in (*closed, "/v1/nothing", "/.service/service.sqlite", "/openapi.json", "/docs"):
        for method in ("GET", "POST", "DELETE", "PUT", "OPTIONS"):
            answer = client.request(method, path.replace("{id}", "a" * 24))
            assert error_of(answer) == (401, "unauthorised")
            assert answer.headers["www-authenticate"].startswith("Bearer")
    answer = client.get("/")
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert client.get("/page/locked.html").status_code == 200


def test_the_token_lets_in_and_nothing_like_it(client):
    for value in WRONG:
        answer = client.get("/v1/about", headers={"Authorization": value.encode("latin-1")})
        assert error_of(answer) == (401, "unauthorised"), value
    for value in (BEARER["Authorization"], f"bearer  {TOKEN}"):
        assert client.get("/v1/about", headers={"Authorization": value}).status_code == 200


def test_a_link_works_once_and_leaves_a_cookie_that_scripts_cannot_see(client):
    code = client.app_state.access.new_code()
    answer = client.get(f"/open/{code}")
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/", "max-age="))
    assert "secure" not in cookie
    assert client.get("/v1/about").status_code == 200
    assert client.get("/").status_code == 200
    client.cookies.clear()
    for wrong in (code, "x", code + "x", "../open/x", TOKEN):
        assert "set-cookie" not in client.get(f"/open/{wrong}").headers
    assert client.get("/v1/about").status_code == 401


def test_links_and_sessions_end(client, monkeypatch):
    code, now = client.app_state.access.new_code(), access.time.time()
    sign_in(client)
    for seconds in (access.LINK_SECONDS, access.SESSION_SECONDS):
        assert client.get("/v1/about").status_code == 200
        monkeypatch.setattr(access.time, "time", lambda later=now + seconds + 1: later)
        assert "set-cookie" not in client.get(f"/open/{code}").headers
    assert client.get("/v1/about").status_code == 401


def test_secrets_are_nowhere_on_disk(client, tmp_path):
    code = client.app_state.access.new_code()
    client.get(f"/open/{code}")
    cookie = client.cookies[client.app_state.access.cookie]
    client.get("/v1/about", headers={"Authorization": "Bearer mistyped-token"})
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"service.sqlite", "audit.jsonl"} <= written.keys()
    for secret in (TOKEN, code, cookie, "mistyped"):
        assert [name for name, content in written.items() if secret.encode() in content] == []


def test_sessions_survive_a_restart_only_with_the_same_token(tmp_path, model):
    settings = settings_of(tmp_path / "out", model)
    with serving(settings, authorised=False) as client:
        sign_in(client)
        cookie = client.cookies[client.app_state.access.cookie]
    for token, status in ((TOKEN, 200), ("another-token-0123456789", 401), (None, 401)):
        with serving(settings_of(tmp_path / "out", model, token=token), authorised=False) as client:
            client.cookies.set(client.app_state.access.cookie, cookie)
            assert client.get("/v1/about").status_code == status


def test_no_cookie_keeps_the_service_busy(client, monkeypatch):
    sign_in(client)
    ((name, value),) = client.cookies.items()
    client.cookies.clear()
    # Python before 3.11.10 takes half a minute for such a value.
    hostile = 'ntrm_session="' + '\\"' * 31_000 + '"'
    monkeypatch.setattr(http.cookies, "_unquote", lambda value: pytest.fail("the library's own way of reading cookies"))
    for cookies, status in (
        (hostile, 401),
        (f"{name}{hostile}; {name}=x", 401),
        (f"theme=dark; {name}={value}", 200),
        (f'a="b; {name}={value};', 200),
        (f"{name}={value}x", 401),
        (f"{name}", 401),
        (";" * 60_000, 401),
    ):
        headers = {"Cookie": cookies}
        assert client.get("/healthz", headers=headers).status_code == 200
        assert client.get("/v1/about", headers=headers).status_code == status, cookies[:80]


def test_two_services_on_one_machine_sign_nobody_out_at_the_other(tmp_path, model):
    names = set()
    for folder, port in (("out", 8765), ("out", 8766), ("other", 8765)):
        with serving(settings_of(tmp_path / folder, model, port=port), authorised=False) as client:
            names.add(sign_in(client).headers["set-cookie"].partition("=")[0])
            assert client.get("/v1/about").status_code == 200
    assert len(names) == 3


HOSTS = [
    ("127.0.0.1:8765", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:8765", True), ("127.0.0.1", True),
    ("evil.example", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example:8765", False), ("", False),
    ("192.168.0.1", False), ("evil.example:127.0.0.1", False), ("[::1", False), ("0.0.0.0", False),
]  # fmt: skip


def test_only_this_machine_s_names_are_answered(client):
    for host, good in HOSTS:
        for path in ("/v1/about", "/healthz"):
            answer = client.get(path, headers={**BEARER, "Host": host})
            assert answer.status_code == (200 if good else 421), host


def test_names_behind_a_proxy_and_addresses_of_an_open_service(tmp_path, model):
    settings = settings_of(tmp_path / "out", model, host="0.0.0.0", public_url="https://slides.example.org")
    with serving(settings, authorised=False) as client:
        for host, good in (("slides.example.org", True), ("10.1.2.3:8765", True), ("evil.example", False)):
            answer = client.get("/healthz", headers={"Host": host})
            assert answer.status_code == (200 if good else 421)
        client.headers["Host"] = "slides.example.org"
        assert "secure" in sign_in(client).headers["set-cookie"].lower()
        for origin, good in (("https://slides.example.org", True), ("http://slides.example.org", False)):
            answer = client.post("/v1/links", headers={**BEARER, "Origin": origin})
            assert answer.status_code == (201 if good else 403)
    with serving(settings_of(tmp_path / "out", model, public_url="https://slides.example.org:8443")) as client:
        for host, status in (("slides.example.org:8443", 201), ("slides.example.org", 421)):
            headers = {"Host": host, "Origin": f"https://{host}", "X-Forwarded-Host": "slides.example.org:8443"}
            assert client.post("/v1/links", headers=headers).status_code == status


ORIGINS = [
    (HOST, True), ("http://evil.example", False), ("null", False), ("http://127.0.0.1", False), ("", False),
    ("http://127.0.0.1:8765.evil.example", False), ("file://", False), ("http://localhost:8765", False),
    ("ftp://127.0.0.1:8765", False), ("http://[::1", False), ("http://[v1.x]", False),
    ("http://a@127.0.0.1:8765", False),
]  # fmt: skip


def test_requests_from_other_sites_are_refused_whatever_they_bring(client):
    sign_in(client)
    for origin, good in ORIGINS:
        for headers in ({}, BEARER):
            answer = client.post("/v1/links", headers={**headers, "Origin": origin})
            assert answer.status_code == (201 if good else 403), origin
            answer = client.get("/v1/about", headers={**headers, "Origin": origin})
            assert answer.status_code == (200 if good else 403), origin


def test_with_a_cookie_an_unsafe_request_must_say_where_it_comes_from(client):
    sign_in(client)
    assert error_of(client.post("/v1/links")) == (403, "origin")
    assert client.post("/v1/links", headers={"Origin": HOST}).status_code == 201
    assert client.post("/v1/links", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 201
    for site in ("cross-site", "same-site", "none"):
        assert client.post("/v1/links", headers={"Sec-Fetch-Site": site}).status_code == 403
    for site in ("cross-site", "same-site"):
        assert client.get("/v1/about", headers={"Sec-Fetch-Site": site}).status_code == 403
    # A click on a link elsewhere may open the page itself.
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    assert client.post("/v1/links", headers=BEARER).status_code == 201


def test_every_answer_has_the_headers_and_none_lets_other_sites_in(client):
    answers = [
        client.get("/healthz"), client.get("/"), client.get("/v1/about"), client.get("/page/none.js"),
        client.get("/v1/about", headers=BEARER), client.get("/nothing", headers=BEARER),
        client.get("/healthz", headers={"Host": "evil.example"}), client.get("/open/x"),
        client.post("/v1/slides", headers=BEARER), client.get("/v1/slides/x", headers=BEARER),
        client.options("/v1/slides", headers={**BEARER, "Origin": HOST, "Access-Control-Request-Method": "POST"}),
    ]  # fmt: skip
    for answer in answers:
        for name, value in HEADERS.items():
            if name != "cache-control":
                assert answer.headers[name] == value
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in answer.headers
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_a_bug_is_an_answer_without_details(tmp_path, model, monkeypatch):
    app = create_app(settings_of(tmp_path / "out", model))
    with TestClient(app, base_url=HOST, headers=BEARER, raise_server_exceptions=False) as client:
        monkeypatch.setattr(app.state.app_state.store, "waiting", lambda: 1 / 0)
        answer = client.get("/v1/slides")
    assert error_of(answer) == (500, "bug")
    assert "ZeroDivision" not in answer.text
    assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


@pytest.mark.parametrize("token", ["short", "é" * 40, ""])
def test_a_token_that_can_be_guessed_is_refused(token):
    with pytest.raises(RefusedError):
        ServiceSettings(token=token)
    assert "hidden-from-repr-0123456789" not in repr(ServiceSettings(token="hidden-from-repr-0123456789"))
