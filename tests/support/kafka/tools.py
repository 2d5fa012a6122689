"""Apache Kafka's command line tools for groups and transactions: run them on a broker, parse their tables."""

from support.brokers.processes import AnyBroker
from support.kafka import jvm


def tool(broker: AnyBroker, name: str, *arguments: str, code: int = 0) -> str:
    """Run one of org.apache.kafka.tools on the broker; return its output."""
    done = jvm.run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return "\n".join([done.stdout, *(line for line in done.stderr.splitlines() if "SLF4J" not in line)])


def groups(broker: AnyBroker, *arguments: str, code: int = 0) -> str:
    return tool(broker, "consumer.group.ConsumerGroupCommand", *arguments, code=code)


def rows(printed: str, first: str) -> list[dict[str, str]]:
    """The rows of a table, by the names in its header; text around the table has fewer words and is skipped."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    head = next(number for number, words in enumerate(lines) if words[0] == first)
    return [
        dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :] if len(words) >= len(lines[head]) - 1
    ]
