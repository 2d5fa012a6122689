"""Settings engine: a table of settings that parses, checks, explains and documents itself.

It knows kinds of values and their bounds, not the meaning of a setting: the tables live beside their consumers
(`log/settings.py` for topics, `broker/settings.py` for brokers). Numbers are plain, as Kafka has them: no units.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

Value = bool | int | float | str | tuple[str, ...] | None


class Kind(IntEnum):
    """The type of a value; the number is the type code of DescribeConfigs."""

    BOOL = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Live(Enum):
    """Whether a setting can be changed dynamically: for one broker, for the cluster, or not at all."""

    READ_ONLY = "at start only"
    PER_BROKER = "per broker"
    CLUSTER_WIDE = "per broker or cluster-wide"


RANGES = {Kind.SHORT: 2**15, Kind.INT: 2**31, Kind.LONG: 2**63}

LONGEST_SHOWN = 120  # characters of a user's text in a message; also the longest name that is compared with known ones

Check = Callable[[Value], str | None]  # what is wrong with a parsed value, as the end of "<name> must be …"


# Named tuples rather than dataclasses: hundreds of rows are made whenever a broker starts.
class Synonym(NamedTuple):
    """A setting of the broker that gives a topic setting its default; `times` turns its unit into ours."""

    name: str
    times: int = 1


class SettingError:
    """Why a value or a name is refused, as a value with a message for the user."""

    __slots__ = ("message", "name")

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        self.message = message

    def __repr__(self) -> str:
        return f"SettingError({self.message!r})"


class SettingsRefused(Exception):
    """Settings that the program cannot start with: all problems at once."""

    def __init__(self, problems: Iterable[SettingError]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.message for problem in self.problems))


class Setting(NamedTuple):
    """One row of a table. `also` lists values allowed outside the bounds; hidden ones are described only when set."""

    name: str
    kind: Kind
    default: Value = None
    least: float | None = None
    most: float | None = None
    also: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    any_case: bool = False
    check: Check | None = None
    live: Live = Live.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    hidden: bool = False
    doc: str = ""

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Value | SettingError:
        """The typed value, or an error that says what is wrong and what to write."""
        trimmed = text.strip()
        value = PARSERS[self.kind](self, trimmed)
        if isinstance(value, SettingError):
            return value
        wrong = self._out_of_bounds(value) or (self.check(value) if self.check else None)
        return self._refuse(wrong, trimmed) if wrong else value

    def _out_of_bounds(self, value: Value) -> str | None:
        if self.choices:
            return self._not_a_choice(value)
        if not isinstance(value, int | float) or value in self.also:
            return None
        too_low = self.least is not None and value < self.least
        too_high = self.most is not None and value > self.most
        if not (too_low or too_high):
            return None
        if self.also:
            return f"between {self.least} and {self.most}, or {' or '.join(map(str, self.also))}"
        return f"at least {self.least}" if too_low else f"at most {self.most}"

    def _not_a_choice(self, value: Value) -> str | None:
        given = value if isinstance(value, tuple) else (str(value),)
        allowed = {choice.lower() for choice in self.choices} if self.any_case else set(self.choices)
        if all((word.lower() if self.any_case else word) in allowed for word in given):
            return None
        listing = ", ".join(self.choices)
        return f"a list of: {listing}" if self.kind is Kind.LIST else f"one of {listing}"

    def _refuse(self, must_be: str, text: str, advice: str = "") -> SettingError:
        plain = self.kind in RANGES or self.kind is Kind.DOUBLE
        shown = shortened(text)
        got = "a value that is not shown" if self.sensitive else (shown if plain and text else f"'{shown}'")
        return SettingError(self.name, f"{self.name} must be {must_be}, got {got}{advice}")


def shortened(text: str) -> str:
    """A user's text, shortened for a message."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


class Group(NamedTuple):
    """Rows that are not used for the same reason: `what` names their feature, or says why they have no meaning."""

    what: str
    settings: tuple[Setting, ...]


def text_of(value: Value) -> str | None:
    """A value as Kafka writes it in DescribeConfigs."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return java_double(value) if isinstance(value, float) else str(value)


def java_double(value: float) -> str:
    """As Java prints a double: plain from 10⁻³ to 10⁷, otherwise with one digit before the point and an E."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    shortest = next(form for digits in range(18) if float(form := f"{value:.{digits}e}") == value)
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _bool(setting: Setting, text: str) -> Value | SettingError:
    answer = {"true": True, "false": False}.get(text.lower())
    return setting._refuse("true or false", text) if answer is None else answer


def _whole(setting: Setting, text: str) -> Value | SettingError:
    limit = RANGES[setting.kind]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return setting._refuse("a plain whole number", text, _without_unit(setting, text))
    value = (
        int(text) if len(digits) <= 40 else limit
    )  # int() of a very long text is slow, and it is out of range anyway
    if not -limit <= value < limit:
        return setting._refuse(f"a whole number from {-limit} to {limit - 1}", text)
    return value


def _double(setting: Setting, text: str) -> Value | SettingError:
    number = text[:-1] if text[-1:] in ("d", "D", "f", "F") else text  # Java's suffixes
    plain = number[-1:] in "0123456789." and not set(number) - set("+-.0123456789eE")
    try:
        return float(number) if plain else setting._refuse("a number", text)
    except ValueError:
        return setting._refuse("a number", text)


def _text(setting: Setting, text: str) -> Value | SettingError:
    return text


def _list(setting: Setting, text: str) -> Value | SettingError:
    return tuple(word.strip() for word in text.split(",")) if text else ()


PARSERS: Mapping[Kind, Callable[[Setting, str], Value | SettingError]] = {
    Kind.BOOL: _bool,
    Kind.STRING: _text,
    Kind.INT: _whole,
    Kind.SHORT: _whole,
    Kind.LONG: _whole,
    Kind.DOUBLE: _double,
    Kind.LIST: _list,
    Kind.CLASS: _text,
    Kind.PASSWORD: _text,
}

SIZES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
TIMES_MS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS_OF_NAME = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}  # what a name's last word counts in


def _without_unit(setting: Setting, text: str) -> str:
    """What to write instead of `10MB` or `7d`; empty for other texts."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().lower()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        bare = digits.replace("_", "").replace(",", "")
        return "; write the digits alone" if bare.isascii() and bare.isdigit() else ""
    last_word = setting.name.rpartition(".")[2]
    if last_word in UNITS_OF_NAME:
        per_unit = TIMES_MS.get(unit, TIMES_MS.get(unit.rstrip("s"), 0))
        amount, rest = divmod(int(digits) * per_unit, UNITS_OF_NAME[last_word])
    else:
        per_unit = (
            SIZES.get(unit[:1], 0) if unit in ("b", *(size + end for size in "kmgt" for end in ("", "b", "ib"))) else 0
        )
        amount, rest = int(digits) * per_unit, 0
    return f"; write {amount}" if per_unit and not rest else f"; write it without the unit {unit!r}"


class Table:
    """Settings by name. `what` is used in messages: "topic", "broker"."""

    def __init__(self, what: str, settings: Iterable[Setting]) -> None:
        self.what = what
        self._by_name = {setting.name: setting for setting in settings}

    def __getitem__(self, name: str) -> Setting:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Setting | None:
        return self._by_name.get(name)

    def parse(self, name: str, text: str) -> Value | SettingError:
        setting = self._by_name.get(name)
        return self.unknown(name) if setting is None else setting.parse(text)

    def unknown(self, name: str) -> SettingError:
        """The error for an unknown name, with the nearest known one."""
        near = self.nearest(name)
        hint = f"; did you mean {near}?" if near else ""
        return SettingError(name, f"Unknown {self.what} config name: {shortened(name)}{hint}")

    def nearest(self, name: str) -> str | None:
        if len(name) > LONGEST_SHOWN:
            return None
        import difflib  # imported for an error only

        shown = [setting.name for setting in self if not setting.hidden]
        matches = difflib.get_close_matches(name.strip().lower().replace("_", "."), shown, n=1, cutoff=0.6)
        return matches[0] if matches else None


def markdown(settings: Iterable[Setting], *, live: bool) -> str:
    """The settings as a Markdown table; `live` adds the column that says when a change takes effect."""
    head = ["Setting", "Kind", "Default", "Allowed", *(["Can change"] if live else []), "What it does"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for setting in sorted(settings, key=lambda each: each.name):
        default = text_of(setting.default)
        cells = [f"`{setting.name}`", setting.kind.name.lower(), f"`{default}`" if default else "none"]
        cells += [_allowed(setting), *([setting.live.value] if live else []), setting.doc]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind is Kind.BOOL:
        return "`true`, `false`"
    bounds = [f"≥ {setting.least}"] if setting.least is not None else []
    bounds += [f"≤ {setting.most}"] if setting.most is not None else []
    extra = f" or {', '.join(map(str, setting.also))}" if setting.also else ""
    return (", ".join(bounds) + extra) if bounds else ""
