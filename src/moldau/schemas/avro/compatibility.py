"""Schema resolution of Avro: what a reader cannot read of a writer's data.

Not by the package `avro`: docs/decisions/0033-schemas.md says why.
"""

from collections.abc import Iterable

from moldau.schemas.avro.rules import RULES
from moldau.schemas.avro.schema import AvroSchema
from moldau.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, NamedType, Record, Union, name_of
from moldau.schemas.compatibility import Incompatibility
from moldau.schemas.pairs import Pairs
from moldau.schemas.rules import Differences
from moldau.schemas.schema import ParsedSchema

PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def compare_avro(reader: ParsedSchema, writer: ParsedSchema) -> tuple[Incompatibility, ...]:
    assert isinstance(reader, AvroSchema)
    assert isinstance(writer, AvroSchema)
    differences = Differences(RULES)
    resolution = _Resolution()
    resolution.resolve(reader.root, writer.root, "", differences)
    resolution.pairs.finish(differences)
    return differences.incompatibilities("")


class _Resolution:
    """One comparison of two schemas."""

    def __init__(self) -> None:
        self.pairs = Pairs()
        self._branches: dict[int, dict[str, AvroType]] = {}  # of unions, by name

    def resolve(self, reader: AvroType, writer: AvroType, path: str, out: Differences) -> None:
        if isinstance(writer, Union):
            for index, branch in enumerate(writer.branches):
                if self.pairs.exhausted:
                    return
                self.resolve(reader, branch, f"{path}/{index}", out)
        elif isinstance(reader, Union):
            if not any(self._readable(branch, writer, out) for branch in self._candidates(reader, writer)):
                out.add("MISSING_UNION_BRANCH", path, writer=name_of(writer))
        elif reader.kind != writer.kind and not (isinstance(reader, Record) and isinstance(writer, Record)):
            if writer.kind not in PROMOTIONS.get(reader.kind, ()):
                out.add("TYPE_MISMATCH", path, reader=name_of(reader), writer=name_of(writer))
        else:
            self._same_kind(reader, writer, path, out)

    def _candidates(self, reader: Union, writer: AvroType) -> Iterable[AvroType]:
        """The branches of the reader's union, that of the writer's name first."""
        by_name = self._branches.setdefault(id(reader), {})
        if not by_name:
            by_name.update((name_of(branch), branch) for branch in reader.branches)
        same = by_name.get(name_of(writer))
        return reader.branches if same is None else (same, *reader.branches)

    def _readable(self, reader: AvroType, writer: AvroType, out: Differences) -> bool:
        return self.pairs.trial(out, lambda trial: self.resolve(reader, writer, "", trial)).compatible

    def _same_kind(self, reader: AvroType, writer: AvroType, path: str, out: Differences) -> None:
        match reader, writer:
            case Array(), Array():
                self.resolve(reader.items, writer.items, f"{path}/items", out)
            case Map(), Map():
                self.resolve(reader.values, writer.values, f"{path}/values", out)
            case Fixed(), Fixed():
                _compare_names(reader, writer, path, out)
                if reader.size != writer.size:
                    sizes = {"reader": reader.size, "writer": writer.size}
                    out.add("FIXED_SIZE_MISMATCH", f"{path}/size", name=reader.full_name, **sizes)
            case Enum(), Enum():
                _compare_names(reader, writer, path, out)
                known = set(reader.symbols)
                missing = [symbol for symbol in writer.symbols if symbol not in known]
                if missing and reader.default is None:
                    symbols = ", ".join(missing)
                    out.add("MISSING_ENUM_SYMBOLS", f"{path}/symbols", name=reader.full_name, symbols=symbols)
            case Record(), Record():
                self.pairs.compare(reader, writer, path, out, lambda inner: self._records(reader, writer, inner))

    def _records(self, reader: Record, writer: Record, out: Differences) -> None:
        _compare_names(reader, writer, "", out)
        written = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            sources = [written[name] for name in dict.fromkeys((field.name, *field.aliases)) if name in written]
            if len(sources) > 1:
                names = " and ".join(source.name for source in sources)
                out.add("READER_FIELD_AMBIGUOUS", f"/fields/{index}", name=field.name, names=names)
            elif sources:
                self.resolve(field.type, sources[0].type, f"/fields/{index}/type", out)
            elif not field.has_default:
                out.add("READER_FIELD_MISSING_DEFAULT_VALUE", f"/fields/{index}", name=field.name)


def _compare_names(reader: NamedType, writer: NamedType, path: str, out: Differences) -> None:
    if reader.name != writer.name and writer.full_name not in reader.aliases:
        names = {"reader": reader.full_name, "writer": writer.full_name}
        out.add("NAME_MISMATCH", f"{path}/name", kind=reader.kind, **names)
