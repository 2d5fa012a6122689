"""Parser of .proto files in proto2 and proto3: text to elements. What the elements mean is checked in `linking`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from moldau.schemas.protobuf.elements import (
    MAX_ENUM_NUMBER,
    MAX_FIELD_NUMBER,
    Constant,
    EnumElement,
    EnumValueElement,
    ExtendElement,
    ExtensionsElement,
    FieldElement,
    FileElement,
    GroupElement,
    Kind,
    ListLiteral,
    MapType,
    MessageElement,
    MessageLiteral,
    OneofElement,
    Option,
    OptionValue,
    Range,
    ReservedElement,
    RpcElement,
    ServiceElement,
)
from moldau.schemas.protobuf.tokens import Tokens
from moldau.schemas.schema import MAX_NESTING, InvalidSchema

_LABELS = ("optional", "required", "repeated")


def parse_file(text: str) -> FileElement:
    """The elements of a .proto file, or InvalidSchema with line and column."""
    return _Parser(text).file()


@dataclass(slots=True)
class _Body:
    """The parts of a file, message, oneof or extend while it is parsed."""

    fields: list[FieldElement] = field(default_factory=list)
    oneofs: list[OneofElement] = field(default_factory=list)
    groups: list[GroupElement] = field(default_factory=list)
    messages: list[MessageElement] = field(default_factory=list)
    enums: list[EnumElement] = field(default_factory=list)
    reserved: list[ReservedElement] = field(default_factory=list)
    extensions: list[ExtensionsElement] = field(default_factory=list)
    extends: list[ExtendElement] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


_Statement: TypeAlias = Callable[[], None]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0

    def file(self) -> FileElement:
        tokens = self._tokens
        syntax = self._syntax()
        package = ""
        imports: list[str] = []
        public_imports: list[str] = []
        services: list[ServiceElement] = []
        body = _Body()
        while tokens.ahead.kind != "end":
            if tokens.accept(";"):
                continue
            match tokens.ahead.text:
                case "package":
                    if package:
                        raise tokens.fail("a file has one package")
                    tokens.take()
                    package = tokens.full_name()
                    tokens.expect(";")
                case "import":
                    tokens.take()
                    public = tokens.accept("public")
                    if not public:
                        tokens.accept("weak")
                    (public_imports if public else imports).append(tokens.string())
                    tokens.expect(";")
                case "service":
                    tokens.take()
                    services.append(self._service())
                case "message" | "enum" | "extend" | "option":
                    self._definition(body)
                case other:
                    raise tokens.fail(f"unexpected {other!r}: expected message, enum, import, option or the like")
        return FileElement(
            syntax,
            package,
            tuple(imports),
            tuple(public_imports),
            tuple(body.messages),
            tuple(body.enums),
            tuple(body.extends),
            tuple(services),
            tuple(body.options),
        )

    def _syntax(self) -> str:
        tokens = self._tokens
        if tokens.at("edition"):
            raise tokens.fail('editions are not supported: write syntax = "proto2" or "proto3"')
        if not tokens.accept("syntax"):
            return ""
        tokens.expect("=")
        written = tokens.ahead
        syntax = tokens.string()
        if syntax not in ("proto2", "proto3"):
            raise InvalidSchema(f"the syntax {written.text} is neither proto2 nor proto3")
        tokens.expect(";")
        return syntax

    def _definition(self, body: _Body) -> None:
        """A statement that is allowed in files and in messages."""
        tokens = self._tokens
        line = tokens.line
        match tokens.take().text:
            case "message":
                body.messages.append(self._message(tokens.word(), line))
            case "enum":
                body.enums.append(self._enum(line))
            case "extend":
                name = tokens.full_name()
                inner = _Body()
                self._block(lambda: self._field(inner))
                body.extends.append(ExtendElement(name, tuple(inner.fields), tuple(inner.groups)))
            case _:
                body.options.append(self._option_statement())

    def _message(self, name: str, line: int) -> MessageElement:
        body = _Body()
        self._block(lambda: self._message_statement(body))
        return MessageElement(
            name,
            tuple(body.fields),
            tuple(body.oneofs),
            tuple(body.groups),
            tuple(body.messages),
            tuple(body.enums),
            tuple(body.reserved),
            tuple(body.extensions),
            tuple(body.extends),
            tuple(body.options),
            line,
        )

    def _message_statement(self, body: _Body) -> None:
        tokens = self._tokens
        match tokens.ahead.text:
            case "message" | "enum" | "extend" | "option":
                self._definition(body)
            case "oneof":
                line = tokens.line
                tokens.take()
                body.oneofs.append(self._oneof(line))
            case "reserved":
                tokens.take()
                body.reserved.append(self._reserved(MAX_FIELD_NUMBER))
            case "extensions":
                tokens.take()
                body.extensions.append(self._extensions())
            case _:
                self._field(body)

    def _block(self, statement: _Statement) -> None:
        tokens = self._tokens
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise tokens.fail(f"nested deeper than {MAX_NESTING}")
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.ahead.kind == "end":
                raise tokens.fail("the end of the file, and a { is not closed")
            if not tokens.accept(";"):
                statement()
        self._depth -= 1

    def _field(self, body: _Body, *, labelled: bool = True) -> None:
        tokens = self._tokens
        line = tokens.line
        label = tokens.take().text if labelled and tokens.ahead.text in _LABELS else ""
        if tokens.at("group"):
            tokens.take()
            body.groups.append(self._group(label, line))
            return
        kind = self._type()
        name = tokens.word()
        tokens.expect("=")
        number = self._field_number()
        options = self._options()
        tokens.expect(";")
        body.fields.append(FieldElement(name, number, kind, label, options, line))

    def _field_number(self) -> int:
        number = self._tokens.integer()
        if not 1 <= number <= MAX_FIELD_NUMBER or 19000 <= number <= 19999:
            raise self._tokens.fail(f"a field number is 1 to {MAX_FIELD_NUMBER}, without 19000 to 19999")
        return number

    def _type(self) -> str | MapType:
        tokens = self._tokens
        name = tokens.full_name()
        if name != "map" or not tokens.accept("<"):
            return name
        key = tokens.word()
        tokens.expect(",")
        value = tokens.full_name()
        tokens.expect(">")
        return MapType(key, value)

    def _group(self, label: str, line: int) -> GroupElement:
        tokens = self._tokens
        name = tokens.word()
        tokens.expect("=")
        number = self._field_number()
        self._options()
        return GroupElement(label, number, self._message(name, line))

    def _oneof(self, line: int) -> OneofElement:
        name = self._tokens.word()
        body = _Body()

        def statement() -> None:
            if self._tokens.at("option"):
                self._definition(body)
            elif self._tokens.ahead.text in _LABELS:
                raise self._tokens.fail(f"a field of a oneof has no label {self._tokens.ahead.text}")
            else:
                self._field(body, labelled=False)

        self._block(statement)
        return OneofElement(name, tuple(body.fields), tuple(body.groups), tuple(body.options), line)

    def _enum(self, line: int) -> EnumElement:
        tokens = self._tokens
        name = tokens.word()
        body = _Body()
        values: list[EnumValueElement] = []

        def statement() -> None:
            if tokens.at("option"):
                self._definition(body)
            elif tokens.accept("reserved"):
                body.reserved.append(self._reserved(MAX_ENUM_NUMBER))
            else:
                value = tokens.word()
                tokens.expect("=")
                number = tokens.integer()
                if not -MAX_ENUM_NUMBER - 1 <= number <= MAX_ENUM_NUMBER:
                    raise tokens.fail(f"the number of {value} is no int32")
                values.append(EnumValueElement(value, number, self._options()))
                tokens.expect(";")

        self._block(statement)
        return EnumElement(name, tuple(values), tuple(body.reserved), tuple(body.options), line)

    def _reserved(self, largest: int) -> ReservedElement:
        tokens = self._tokens
        values: list[Range | str] = []
        while True:
            match tokens.ahead.kind:
                case "string":
                    values.append(tokens.string())
                case "word":
                    values.append(tokens.word())
                case _:
                    values.append(self._range(largest))
            if not tokens.accept(","):
                break
        tokens.expect(";")
        return ReservedElement(tuple(values))

    def _extensions(self) -> ExtensionsElement:
        tokens = self._tokens
        ranges = [self._range(MAX_FIELD_NUMBER)]
        while tokens.accept(","):
            ranges.append(self._range(MAX_FIELD_NUMBER))
        options = self._options()
        tokens.expect(";")
        return ExtensionsElement(tuple(ranges), options)

    def _range(self, largest: int) -> Range:
        tokens = self._tokens
        first = last = tokens.integer()
        if tokens.accept("to"):
            last = largest if tokens.accept("max") else tokens.integer()
        if not first <= last <= largest:
            raise tokens.fail(f"the range {first} to {last} is empty or too large")
        return Range(first, last)

    def _service(self) -> ServiceElement:
        tokens = self._tokens
        name = tokens.word()
        body = _Body()
        rpcs: list[RpcElement] = []

        def statement() -> None:
            if tokens.at("option"):
                self._definition(body)
            else:
                tokens.expect("rpc")
                rpcs.append(self._rpc())

        self._block(statement)
        return ServiceElement(name, tuple(rpcs), tuple(body.options))

    def _rpc(self) -> RpcElement:
        tokens = self._tokens
        name = tokens.word()
        request, request_streams = self._rpc_type()
        tokens.expect("returns")
        response, response_streams = self._rpc_type()
        body = _Body()
        if tokens.at("{"):
            self._block(lambda: self._rpc_option(body))
        else:
            tokens.expect(";")
        return RpcElement(name, request, response, request_streams, response_streams, tuple(body.options))

    def _rpc_option(self, body: _Body) -> None:
        self._tokens.expect("option")
        body.options.append(self._option_statement())

    def _rpc_type(self) -> tuple[str, bool]:
        tokens = self._tokens
        tokens.expect("(")
        streams = tokens.accept("stream")
        name = "stream" if streams and tokens.at(")") else tokens.full_name()  # a message may be called so
        tokens.expect(")")
        return name, streams and name != "stream"

    def _option_statement(self) -> Option:
        option = self._option()
        self._tokens.expect(";")
        return option

    def _options(self) -> tuple[Option, ...]:
        tokens = self._tokens
        if not tokens.accept("["):
            return ()
        options = [self._option()]
        while tokens.accept(","):
            options.append(self._option())
        tokens.expect("]")
        return tuple(options)

    def _option(self) -> Option:
        tokens = self._tokens
        parts = [self._option_part()]
        while tokens.accept("."):
            parts.append(self._option_part())
        tokens.expect("=")
        return Option(".".join(parts), self._value())

    def _option_part(self) -> str:
        tokens = self._tokens
        if not tokens.accept("("):
            return tokens.word()
        name = tokens.full_name()
        tokens.expect(")")
        return f"({name})"

    def _value(self) -> OptionValue:
        tokens = self._tokens
        match tokens.ahead.kind:
            case "string":
                return Constant(Kind.STRING, tokens.string())
            case "word":
                return Constant(Kind.IDENTIFIER, tokens.take().text)
            case "number":
                return Constant(Kind.NUMBER, tokens.take().text)
        if tokens.ahead.text in ("-", "+"):
            sign = tokens.take().text.replace("+", "")
            return Constant(Kind.NUMBER, sign + tokens.take().text)
        if tokens.ahead.text in ("{", "<", "["):
            self._depth += 1
            if self._depth > MAX_NESTING:
                raise tokens.fail(f"nested deeper than {MAX_NESTING}")
            opening = tokens.take().text
            value = self._list() if opening == "[" else self._literal("}" if opening == "{" else ">")
            self._depth -= 1
            return value
        raise tokens.fail(f"expected the value of an option, found {tokens.ahead.text or 'the end'!r}")

    def _literal(self, closing: str) -> OptionValue:
        tokens = self._tokens
        entries: list[tuple[str, OptionValue]] = []
        while not tokens.accept(closing):
            if tokens.accept("["):
                key = tokens.full_name()
                if tokens.accept("/"):
                    key += "/" + tokens.full_name()
                tokens.expect("]")
                key = f"[{key}]"
            else:
                key = tokens.word()
            if not tokens.accept(":") and tokens.ahead.text not in ("{", "<"):
                raise tokens.fail(f"expected ':' after {key}")
            entries.append((key, self._value()))
            if not tokens.accept(","):
                tokens.accept(";")
        return MessageLiteral(tuple(entries))

    def _list(self) -> OptionValue:
        tokens = self._tokens
        values: list[OptionValue] = []
        while not tokens.accept("]"):
            values.append(self._value())
            if not tokens.accept(",") and not tokens.at("]"):
                raise tokens.fail("expected ',' or ']'")
        return ListLiteral(tuple(values))
