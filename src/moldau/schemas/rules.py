"""Rules of compatibility as tables: a difference between schemas has an id, a text, and breaks readers or not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.schemas.compatibility import Incompatibility

MAX_DIFFERENCES = 1_000  # found in one comparison; what follows adds nothing for its reader
TOO_COMPLEX = "SCHEMA_TOO_COMPLEX"


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of difference. `text` says it about a path, `{path}`, and other details."""

    id: str
    breaks: bool
    text: str


def table(*, breaking: Mapping[str, str], harmless: Mapping[str, str]) -> dict[str, Rule]:
    """Rules by id, from their texts."""
    rules = [Rule(name, True, text) for name, text in breaking.items()]
    rules += [Rule(name, False, text) for name, text in harmless.items()]
    rules.append(Rule(TOO_COMPLEX, True, "{path}: the schemas are too complex to be compared; simplify their unions"))
    return {rule.id: rule for rule in rules}


@dataclass(frozen=True, slots=True)
class Difference:
    """A rule that applies at a path: empty for the root, or steps each with a slash in front."""

    rule: Rule
    path: str
    details: tuple[tuple[str, object], ...] = ()

    def below(self, path: str) -> "Difference":
        return Difference(self.rule, path + self.path, self.details) if path else self

    def incompatibility(self, root: str) -> Incompatibility:
        path = (root + self.path) or "/"
        return Incompatibility(self.rule.id, path, self.rule.text.format(path=path, **dict(self.details)))


@dataclass(slots=True)
class Differences:
    """What one comparison has found so far."""

    rules: Mapping[str, Rule]
    found: list[Difference] = field(default_factory=list)

    def add(self, rule: str, path: str, **details: object) -> None:
        if len(self.found) < MAX_DIFFERENCES:
            self.found.append(Difference(self.rules[rule], path, tuple(details.items())))

    def add_all(self, differences: Iterable[Difference], path: str = "") -> None:
        for difference in differences:
            if len(self.found) < MAX_DIFFERENCES:
                self.found.append(difference.below(path))

    @property
    def compatible(self) -> bool:
        return not any(difference.rule.breaks for difference in self.found)

    def incompatibilities(self, root: str) -> tuple[Incompatibility, ...]:
        """Those differences that break readers, each once. `root` stands in front of their paths."""
        return tuple(dict.fromkeys(found.incompatibility(root) for found in self.found if found.rule.breaks))
