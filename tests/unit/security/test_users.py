"""User documents: credentials beside quotas, and damaged texts."""

import json

import pytest

from moldau.security.scram import new_credential
from moldau.security.users import credentials, with_credentials

FIRST, SECOND = (new_credential("sha256", password, b"salt", 1) for password in ("one", "two"))


def test_credentials_are_set_replaced_and_deleted() -> None:
    text = with_credentials(None, {"SCRAM-SHA-256": FIRST})
    assert credentials(text) == {"SCRAM-SHA-256": FIRST}
    assert credentials(with_credentials(text, {"SCRAM-SHA-256": SECOND})) == {"SCRAM-SHA-256": SECOND}
    assert with_credentials(text, {"SCRAM-SHA-256": None}) is None


def test_quotas_of_the_same_document_are_kept() -> None:
    before = json.dumps({"version": 1, "config": {"producer_byte_rate": "1024"}})
    text = with_credentials(before, {"SCRAM-SHA-512": FIRST})
    assert text is not None
    assert json.loads(text)["config"]["producer_byte_rate"] == "1024"
    after = with_credentials(text, {"SCRAM-SHA-512": None})
    assert after is not None
    assert json.loads(after) == json.loads(before)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"config":[]}', '{"config":{"SCRAM-SHA-256":"salt=x"}}'])
def test_damaged_documents_have_no_credentials(text: str) -> None:
    assert credentials(text) == {}
