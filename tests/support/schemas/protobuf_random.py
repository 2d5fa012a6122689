"""Random .proto files in proto3, and random changes to them."""

from random import Random

SCALARS = ("int32", "int64", "uint32", "bool", "sint32", "string", "bytes", "fixed32", "double", "float")
Fields = dict[int, str]  # the rest of a field's text by its number
Model = dict[str, tuple[Fields, Fields]]  # by message: fields outside of oneofs, and inside of one


def random_model(choice: Random) -> Model:
    names = choice.sample(("A", "B", "C", "D"), choice.randrange(1, 4))
    return {name: _message(choice, names) for name in names}


def changed_model(model: Model, choice: Random) -> Model:
    names = list(model)
    result = {name: (dict(plain), dict(inside)) for name, (plain, inside) in model.items()}
    for _ in range(choice.randrange(1, 4)):
        plain, inside = result[choice.choice(names)]
        side, other = (plain, inside) if choice.random() < 0.6 else (inside, plain)
        number = choice.randrange(1, 7)
        if number in side and choice.random() < 0.4:
            del side[number]
        elif number in side and choice.random() < 0.4:
            other[number] = side.pop(number).removeprefix("repeated ").removeprefix("optional ")
        elif number not in other:
            side[number] = _type(choice, names, labelled=side is plain)
    return result


def written(model: Model) -> str:
    lines = ['syntax = "proto3";']
    for name, (plain, inside) in model.items():
        lines.append(f"message {name} {{")
        lines += [f"  {kind} f{number} = {number};" for number, kind in plain.items()]
        if inside:
            lines += ["  oneof o {", *(f"    {kind} f{number} = {number};" for number, kind in inside.items()), "  }"]
        lines.append("}")
    return "\n".join(lines)


def _message(choice: Random, names: list[str]) -> tuple[Fields, Fields]:
    plain: Fields = {}
    inside: Fields = {}
    for number in range(1, 7):
        if choice.random() < 0.5:
            side = plain if choice.random() < 0.7 else inside
            side[number] = _type(choice, names, labelled=side is plain)
    return plain, inside


def _type(choice: Random, names: list[str], *, labelled: bool) -> str:
    kind = choice.choice((*SCALARS, *names))
    if not labelled:
        return kind
    if choice.random() < 0.15:
        return f"map<string, {kind}>"
    return choice.choice(("", "", "repeated ", "optional ")) + kind
