"""Bodies, content types and paths before an endpoint sees them."""

import pytest

from moldau.services.http.problems import HttpProblem
from moldau.services.registry.api.dispatch import MEDIA_TYPE, negotiate, read_body
from moldau.services.registry.api.table import ENDPOINTS, Match, find


@pytest.mark.parametrize(
    "body", [b"", b"  ", b"{", b"\xff", b'{"a": NaN}', b'{"a": -Infinity}', b'"\\ud800"', b"[" * 100_000]
)
def test_bodies_that_are_no_json(body: bytes) -> None:
    with pytest.raises(HttpProblem) as refused:
        read_body(body)
    assert refused.value.status == 400


def test_bodies() -> None:
    assert read_body(b'{"a": "\\u010d \\ud83d\\ude00"}') == {"a": "č 😀"}


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("*/*", MEDIA_TYPE),
        ("application/json", "application/json"),
        ("application/json;q=0.5, application/vnd.schemaregistry.v1+json", MEDIA_TYPE),
        ("text/html, */*;q=0.1", MEDIA_TYPE),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
    ],
)
def test_types_of_answers(accept: str, answered: str) -> None:
    assert negotiate({"accept": accept}) == answered


@pytest.mark.parametrize(("headers", "status"), [({"accept": "text/html"}, 406), ({"content-type": "text/xml"}, 415)])
def test_types_that_it_does_not_have(headers: dict[str, str], status: int) -> None:
    with pytest.raises(HttpProblem) as refused:
        negotiate(headers)
    assert refused.value.status == status


def test_every_endpoint_is_found_by_its_own_path() -> None:
    for endpoint in ENDPOINTS:
        found = find(endpoint.method, endpoint.path.replace("{", "a").replace("}", ""))
        assert isinstance(found, Match)
        assert found.endpoint == endpoint


def test_subjects_with_slashes_and_contexts() -> None:
    found = find("GET", "/subjects/a%2Fb%20c/versions")
    assert isinstance(found, Match)
    assert found.path == {"subject": "a/b c"}
    found = find("GET", "/contexts/.eu/schemas/ids/7")
    assert isinstance(found, Match)
    assert found.path == {"id": "7", "subject": ":.eu:"}


def test_paths_that_are_none() -> None:
    assert find("GET", "/nothing") == frozenset()
    assert find("PATCH", "/subjects") == {"GET"}
