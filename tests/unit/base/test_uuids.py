"""UUIDs in Kafka's text form."""

from uuid import UUID

import pytest

from moldau.base.uuids import text_of, uuid_of


def test_the_text_is_url_safe_base64_without_padding() -> None:
    assert text_of(UUID(int=0)) == "A" * 22
    assert text_of(UUID(int=2**128 - 1)) == "_" * 21 + "w"


def test_the_text_leads_back() -> None:
    value = UUID("fbfbfbfb-fbfb-4bfb-bbfb-fbfbfbfbfbfb")
    assert "-" in text_of(value)
    assert uuid_of(text_of(value)) == value


@pytest.mark.parametrize("text", ["", "A", "A" * 21, "A" * 23, "A" * 24, "+" * 22, "ä" * 22, "A" * 21 + "="])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        uuid_of(text)
