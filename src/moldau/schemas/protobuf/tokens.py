"""Tokens of .proto files, and a reader over them that knows the line of each. Knows no grammar."""

import re
from dataclasses import dataclass

from moldau.schemas.schema import InvalidSchema

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>0[xX][0-9A-Fa-f]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fF]?)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<symbol>[{}()\[\]<>=;,.:/+-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:[xX]([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # word, number, string, symbol, end
    text: str
    start: int


class Tokens:
    """Reads tokens one by one, with one of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._counted = (0, 1)  # a position, and its line
        self.ahead = self._next()

    @property
    def line(self) -> int:
        position, line = self._counted
        line += self._text.count("\n", position, self.ahead.start)
        self._counted = (self.ahead.start, line)
        return line

    def fail(self, message: str) -> InvalidSchema:
        start = self.ahead.start
        column = start - self._text.rfind("\n", 0, start)
        return InvalidSchema(f"line {self.line}, column {column}: {message}")

    def take(self) -> Token:
        token = self.ahead
        self.ahead = self._next()
        return token

    def at(self, text: str) -> bool:
        return self.ahead.text == text and self.ahead.kind in ("word", "symbol")

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.fail(f"expected {text!r}, found {self.ahead.text or 'the end'!r}")

    def word(self) -> str:
        if self.ahead.kind != "word":
            raise self.fail(f"expected a name, found {self.ahead.text or 'the end'!r}")
        return self.take().text

    def full_name(self) -> str:
        """Words with dots between, maybe one in front."""
        name = "." if self.accept(".") else ""
        name += self.word()
        while self.accept("."):
            name += "." + self.word()
        return name

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        text = self.ahead.text
        if self.ahead.kind != "number" or not (text.isdecimal() or text[:2].lower() == "0x"):
            raise self.fail(f"expected an integer, found {text or 'the end'!r}")
        if len(text) > 32:
            raise self.fail(f"the integer {text[:8]}… is too large")
        if len(text) > 1 and text.isdecimal() and text[0] == "0":
            if set(text) & set("89"):
                raise self.fail(f"{text} is no octal number")
            value = int(text, 8)
        else:
            value = int(text, 0)
        self.take()
        return sign * value

    def string(self) -> str:
        """One string, or several that stand side by side."""
        if self.ahead.kind != "string":
            raise self.fail(f"expected a string, found {self.ahead.text or 'the end'!r}")
        parts = []
        while self.ahead.kind == "string":
            parts.append(unescape(self.ahead.text[1:-1]))
            self.take()
        return "".join(parts)

    def _next(self) -> Token:
        while self._position < len(self._text):
            match = _TOKEN.match(self._text, self._position)
            start = self._position
            if match is None:
                self.ahead = Token("symbol", self._text[start], start)
                raise self.fail(f"unexpected {self._text[start]!r}")
            self._position = match.end()
            if match.lastgroup != "space":
                return Token(str(match.lastgroup), match.group(), start)
        return Token("end", "", len(self._text))


def unescape(text: str) -> str:
    """The value of a string; its bytes above 127 become characters up to U+00FF."""
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: "re.Match[str]") -> str:
    hexadecimal, octal, short, long, other = match.groups()
    if hexadecimal or octal:
        return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF)
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else "\ufffd"
    return _SIMPLE.get(other, other)
