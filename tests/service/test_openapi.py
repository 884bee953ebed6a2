from collections import defaultdict

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient
from tests.service.small import BEARER, HOST, settings_of

from ntrm.service.api.app import create_app
from ntrm.service.api.schemas import ErrorDocument

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.usefixtures("quick_readers")

CHECKS = [
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.response_headers_conformance,
]


def arguments(case):
    """What the test client is to be asked."""
    plain = case.as_transport_kwargs()
    kept = {key: plain[key] for key in ("method", "params", "headers", "data", "json") if plain.get(key) is not None}
    if isinstance(kept.get("data"), bytes | str):
        kept["content"] = kept.pop("data")
    return {**kept, "url": case.formatted_path}


def test_every_route_answers_as_it_is_described_whatever_is_sent(tmp_path, model, results, seed):
    path, _ = results
    app = create_app(settings_of(tmp_path / "out", model, roots=(path.parent,), limits={"queue": 5}))
    seen = defaultdict(list)
    with TestClient(app, base_url=HOST, headers=BEARER) as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        (known,) = (slide["id"] for slide in client.get("/v1/slides").json()["slides"])

        def checking(label):
            def check(case):
                ask(case, label)

            return check

        def ask(case, label):
            # Half of the ids are there: otherwise every answer would be that there is no such slide.
            if "id" in (case.path_parameters or {}) and len(seen[label]) % 2 == 0 and case.method != "DELETE":
                case.path_parameters["id"] = known
            answer = client.request(**arguments(case))
            seen[label].append(answer.status_code)
            assert answer.status_code < 500 or answer.status_code in (503, 507)
            case.validate_response(answer, checks=CHECKS)
            if answer.status_code >= 400:
                ErrorDocument.model_validate(answer.json())

        for found in schema.get_all_operations():
            operation = found.ok()
            few = settings.default.max_examples // 8  # of each route
            quick = settings(max_examples=few, database=None, suppress_health_check=list(HealthCheck))
            hypothesis.seed(seed)(quick(given(case=operation.as_strategy())(checking(operation.label))))()
    assert len(seen) >= 18
    assert all(any(status < 500 for status in statuses) for statuses in seen.values())
