"""Parser of sasl.jaas.config: `package.LoginModule required name="value" …;`. Does not interpret the options.

As in Kafka, there must be exactly one login module.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FLAGS = ("required", "requisite", "sufficient", "optional")
TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/                          # nothing
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<mark>[;=])
    | (?P<word>[^\s;="'/]+)""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Login:
    """A login module, by its class name without package (vendors relocate the class)."""

    module: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    mark: bool = False


def read_jaas(text: str) -> Login | str:
    """The login, or the end of the sentence "sasl.jaas.config must …". Never shows values."""
    tokens = _tokens(text)
    if isinstance(tokens, str):
        return tokens
    if len(tokens) < 2 or tokens[0].mark or tokens[1].mark or tokens[1].text.lower() not in FLAGS:
        return "begin with a login module and the word required"
    if Token(";", mark=True) not in tokens:
        return "end with a semicolon"
    stop = tokens.index(Token(";", mark=True))
    if stop != len(tokens) - 1:
        return "hold one login module, and nothing behind its semicolon"
    options = _options(tokens[2:stop])
    return options if isinstance(options, str) else Login(tokens[0].text.rpartition(".")[2], options)


def _options(tokens: list[Token]) -> dict[str, str] | str:
    options: dict[str, str] = {}
    for start in range(0, len(tokens), 3):
        triple = tokens[start : start + 3]
        name = triple[0].text
        if triple[0].mark or len(triple) < 3 or triple[1] != Token("=", mark=True) or triple[2].mark:
            # Do not repeat the name: it may be part of a password without quotes.
            return 'give options as name="value", with quotes around values that are not plain words'
        if name in options:
            return f"give the option {name} once"
        options[name] = triple[2].text
    return options


def _tokens(text: str) -> list[Token] | str:
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            return "close its quotes and put quotes around values that are not plain words"
        position = match.end()
        kind = match.lastgroup
        if kind is not None:
            piece = match[kind]
            found.append(
                Token(piece if kind in ("mark", "word") else ESCAPE.sub(_unescape, piece), mark=kind == "mark")
            )
    return found


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code.isdigit() and set(code) <= set("01234567") else ESCAPED.get(code, code)
