"""Java .properties files: text in, dictionary out. Knows the syntax, not the meaning of any key."""

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"


class MalformedProperties(ValueError):
    """The text breaks the syntax; the message says where."""


class Properties(dict[str, str]):
    """Keys and values, and where a file has them; a value that is set afterwards has no place in the file."""

    def __init__(self, file: str = "") -> None:
        super().__init__()
        self._file = file
        self._lines: dict[str, int] = {}

    def read(self, key: str, value: str, line: int) -> None:
        super().__setitem__(key, value)
        self._lines[key] = line

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        self._lines.pop(key, None)

    def replace(self, key: str, value: str) -> None:
        """Another value for a key, which stays in its place in the file."""
        super().__setitem__(key, value)

    def copy(self) -> "Properties":
        copied = Properties(self._file)
        copied.update(self)
        copied._lines = dict(self._lines)
        return copied

    def line(self, key: str) -> int:
        """The number of its line; 0 for a key that did not come from the file."""
        return self._lines.get(key, 0)

    def place(self, key: str) -> str | None:
        """`FILE:LINE`, or None for a key that did not come from the file."""
        line = self._lines.get(key)
        return None if line is None else f"{self._file}:{line}"


def read_properties(text: str, file: str = "") -> Properties:
    """Keys and values as Java's Properties.load reads them: the last of two equal keys wins."""
    found = Properties(file)
    for number, line in _logical_lines(text):
        key_end = _end_of_key(line)
        rest = line[key_end:].lstrip(BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(BLANKS)
        found.read(_unescape(line[:key_end], number), _unescape(rest, number), number)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers: comments and blank ones dropped, continued ones joined."""
    lines: list[tuple[int, str]] = []
    continued = False
    # Not str.splitlines: a form feed or a Unicode line separator does not end a line here.
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        goes_on = backslashes % 2 == 1
        content = line[:-1] if goes_on else line
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1] + content)
        else:
            lines.append((number, content))
        continued = goes_on
    return [(number, line) for number, line in lines if line]


def _end_of_key(line: str) -> int:
    escaped = False
    for position, letter in enumerate(line):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in "=:" or letter in BLANKS:
            return position
    return len(line)


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter != "\\":
            parts.append(letter)
            position += 1
            continue
        escape = text[position + 1 : position + 2]
        if escape == "u":
            digits = text[position + 2 : position + 6]
            if len(digits) != 4 or set(digits) - set("0123456789abcdefABCDEF"):
                # The text may be a password, so it is not shown.
                raise MalformedProperties(f"line {line_number}: \\u needs four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 6
        else:
            parts.append(ESCAPES.get(escape, escape))
            position += 2
    # Characters beyond the first plane come as two \u escapes, as in Java's strings.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
