"""The subject of a certificate as text, exactly as Java's X500Principal prints it (RFC 2253). Verifies nothing.

Java's form matters because ACLs and `ssl.principal.mapping.rules` of existing clusters are written for it: the last
attribute first, keywords for nine types alone, other types as their number and the value in hexadecimal DER.
"""

from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE, _SET, _OBJECT_ID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})  # UTF8, Printable, T61, IA5, General, BMP strings
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class MalformedCertificate(ValueError):
    """Bytes that are no certificate in DER."""


class _Value(NamedTuple):
    """One value of DER: its tag, where its content is, and where the whole began."""

    tag: int
    start: int
    content: int
    end: int


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER; "" if it is empty."""
    try:
        return _subject(certificate)
    except IndexError:
        raise MalformedCertificate("the certificate is cut short") from None


def _subject(der: bytes) -> str:
    signed = _read(der, _read(der, 0, _SEQUENCE).content, _SEQUENCE)
    at = signed.content
    version = _read(der, at)
    if version.tag == _VERSION:
        at = version.end
    for _ in range(4):  # serial number, signature algorithm, issuer, validity
        at = _read(der, at).end
    subject = _read(der, at, _SEQUENCE)
    names = [_relative_name(der, each) for each in _inside(der, subject)]
    return ",".join(reversed(names))


def _relative_name(der: bytes, name: _Value) -> str:
    if name.tag != _SET:
        raise MalformedCertificate("a relative name of the subject is no set")
    return "+".join(_attribute(der, each) for each in _inside(der, name))


def _attribute(der: bytes, pair: _Value) -> str:
    kind, value = _inside(der, pair)[:2]
    if kind.tag != _OBJECT_ID:
        raise MalformedCertificate("an attribute of the subject has no type")
    number = _object_id(der[kind.content : kind.end])
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{der[value.start : value.end].hex()}"
    return f"{keyword}={_escape(der[value.content : value.end].decode(errors='replace'))}"


def _escape(text: str) -> str:
    escaped = ["\\" + letter if letter in _ESCAPED else "\\00" if letter == "\0" else letter for letter in text]
    for positions in (range(len(escaped)), range(len(escaped) - 1, -1, -1)):  # spaces at both ends
        for at in positions:
            if escaped[at] != " ":
                break
            escaped[at] = "\\ "
    return "".join(escaped)


def _object_id(content: bytes) -> str:
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _inside(der: bytes, outer: _Value) -> list[_Value]:
    values: list[_Value] = []
    at = outer.content
    while at < outer.end:
        values.append(_read(der, at))
        at = values[-1].end
    return values


def _read(der: bytes, at: int, tag: int | None = None) -> _Value:
    found, length, content = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[content : content + size], "big")
        content += size
    end = content + length
    if end > len(der) or (tag is not None and found != tag):
        raise MalformedCertificate("the certificate is not well-formed DER")
    return _Value(found, at, content, end)
