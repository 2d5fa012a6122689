"""Where bearer tokens come from, and what is said when there is none."""

import base64
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from moldau.spark.tokens import TokenSource, TokenUnavailable

ANSWERS = {"/token": '{"access_token": "abc"}', "/text": "hello", "/empty": "{}", "/list": "[]"}


class Endpoint(BaseHTTPRequestHandler):
    """Gives a token to those who know the secret; other paths answer badly."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        expected = base64.b64encode(b"id:secret").decode()
        good = self.headers["Authorization"] == f"Basic {expected}" and "grant_type=client_credentials" in asked
        self.send_response(200 if good and "scope=all" in asked else 401)
        self.end_headers()
        self.wfile.write(ANSWERS[self.path].encode())

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_endpoint_is_asked(address: str) -> None:
    source = TokenSource(f"{address}/token", "id", "secret", "all")
    assert pickle.loads(pickle.dumps(source))() == "abc"


@pytest.mark.parametrize(
    ("path", "secret", "said"),
    [
        ("/token", "guess", "/token returned 401 Unauthorized"),
        ("/text", "secret", "/text is not JSON"),
        ("/empty", "secret", "/empty has no access_token"),
        ("/list", "secret", "/list has no access_token"),
    ],
)
def test_an_endpoint_that_gives_none(address: str, path: str, secret: str, said: str) -> None:
    with pytest.raises(TokenUnavailable) as caught:
        TokenSource(f"{address}{path}", "id", secret, "all")()
    assert said in str(caught.value)
    assert secret not in str(caught.value)


def test_an_endpoint_that_is_down() -> None:
    with pytest.raises(TokenUnavailable, match=r"cannot reach http://127\.0\.0\.1:1/"):
        TokenSource("http://127.0.0.1:1/", "id", "secret")()


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    source = TokenSource(file.as_uri())
    with pytest.raises(TokenUnavailable, match="cannot be read"):
        source()
    file.write_text("\n")
    with pytest.raises(TokenUnavailable, match="is empty"):
        source()
    file.write_text("abc\n")
    assert source() == "abc"


def test_claims_that_nobody_signs() -> None:
    header, payload, signature = TokenSource(unsigned_claims={"sub": "ann"})().split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (claims["sub"], claims["exp"] - claims["iat"], signature) == ("ann", 3600, "")
