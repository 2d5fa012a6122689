"""Kafka's own command line tools for groups and transactions: run against a broker, and their tables read."""

from support.brokers.processes import AnyBroker
from support.kafka import jvm


def tool(broker: AnyBroker, name: str, *arguments: str, code: int = 0) -> str:
    """Run one of org.apache.kafka.tools against the broker; what it printed."""
    done = jvm.run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return "\n".join([done.stdout, *(line for line in done.stderr.splitlines() if "SLF4J" not in line)])


def groups(broker: AnyBroker, *arguments: str, code: int = 0) -> str:
    return tool(broker, "consumer.group.ConsumerGroupCommand", *arguments, code=code)


def rows(printed: str, first: str) -> list[dict[str, str]]:
    """The lines of a table, by the names in its head; not the sentences around it, which have fewer words."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    head = next(number for number, words in enumerate(lines) if words[0] == first)
    return [
        dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :] if len(words) >= len(lines[head]) - 1
    ]
