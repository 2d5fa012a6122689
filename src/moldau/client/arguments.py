"""Checks of arguments: mistakes of a user are `InvalidUse`, with the name and what would do. Knows no client."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.client.errors import InvalidUse


def check_seconds(name: str, value: object, *, positive: bool = False) -> None:
    """A number of seconds, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or (positive and not value):
        raise InvalidUse(f"{name}={value!r}: give seconds as a number, {'more than 0' if positive else '0 or more'}")


def check_number(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidUse(f"{name}={value!r}: give {least} or more")


def check_text(name: str, value: object) -> None:
    """A text that is not empty, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidUse(f"{name}={value!r}: give a text that is not empty")


def check_callable(name: str, value: object) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        raise InvalidUse(f"{name}={value!r}: give a function")


def check_methods(name: str, value: Any, kind: type) -> None:
    """An object with the methods of a class that users derive from; the class itself is none."""
    methods = [method for method in vars(kind) if method.startswith("on_")]
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidUse(f"{name}={value!r}: give an object with {', '.join(methods)}, as a {kind.__name__} has")


def check_interceptors(value: Any, kind: type) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidUse(f"interceptors={value!r}: give a list of them")
    for each in value:
        check_methods("interceptors", each, kind)


def check_properties(value: object) -> None:
    if value is not None and not isinstance(value, Mapping | str | os.PathLike):
        raise InvalidUse(f"properties={value!r}: give a mapping, or the path of a properties file")


def partition_of(value: object) -> TopicPartition:
    """A TopicPartition, or a pair of a topic and a number."""
    if isinstance(value, TopicPartition):
        return value
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
        return TopicPartition(*value)
    raise InvalidUse(f"{value!r} is no partition: give TopicPartition(topic, number)")


def partitions_of(values: object) -> list[TopicPartition]:
    if isinstance(values, str | TopicPartition) or not isinstance(values, Iterable):
        raise InvalidUse(f"{values!r} are no partitions: give a list of TopicPartition(topic, number)")
    return [partition_of(each) for each in values]
