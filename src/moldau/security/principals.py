"""Principals of TLS clients: `ssl.principal.mapping.rules` turn a certificate's subject into a user name (KIP-371).

The first rule that matches the whole subject gives the name. Patterns are Java's; the few forms that Python writes
otherwise are translated.
"""

import re
from typing import Final, NamedTuple

DEFAULT: Final = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:[,\n]|\Z)", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d)", re.DOTALL)
_JAVA_GROUP = re.compile(r"\(\?<(?![=!])")


class BadRules(ValueError):
    """The text of the rules cannot be read; says which part."""


class MappingRule(NamedTuple):
    """`RULE:pattern/replacement/[LU]`; DEFAULT has no pattern and leaves the subject as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str  # L, U or ""

    def apply(self, subject: str) -> str | None:
        """The user name; None if the rule does not match."""
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = _REFERENCE.sub(lambda reference: _referred(reference, match), self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def read_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules of `ssl.principal.mapping.rules`, separated by commas or line ends; BadRules if one cannot be read."""
    rules: list[MappingRule] = []
    at, text = 0, text.strip() or DEFAULT
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise BadRules(f"'{text[at:]}' is neither DEFAULT nor RULE:pattern/replacement/ with L or U behind it")
        rules.append(_rule(found))
        at = found.end()
    return tuple(rules)


def user_name(subject: str, rules: tuple[MappingRule, ...]) -> str | None:
    """The name of the user with this subject; None if no rule matches, and the client must not be let in."""
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name
    return None


def _rule(found: re.Match[str]) -> MappingRule:
    default, pattern, replacement, case = found.groups()
    if default:
        return MappingRule(None, "", "")
    try:
        return MappingRule(re.compile(_JAVA_GROUP.sub("(?P<", pattern)), replacement, case)
    except re.error as problem:
        raise BadRules(f"the pattern '{pattern}' is no regular expression: {problem}") from None


def _referred(reference: re.Match[str], match: re.Match[str]) -> str:
    """The text for `$1`, `${name}` or an escaped letter. A number above the pattern's groups stands for itself."""
    letter, name, number = reference.groups()
    if letter is not None:
        return str(letter)
    if name is not None:
        return match.groupdict().get(name) or ""
    group = int(number)
    return str(reference[0]) if group > match.re.groups else match[group] or ""
