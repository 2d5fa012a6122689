"""`moldau txn`: list and describe transactions; find hanging ones and abort them."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.base.ids import TopicPartition
from moldau.base.times import read_span
from moldau.client.admin.errors import NoSuchTransactionalId
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_topic, complete_transactional_id
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, client_command, read_choices
from moldau.tools.common.output import print_json, print_table, print_text, show_time
from moldau.tools.common.partitions import show_partitions

if TYPE_CHECKING:  # at run time where they are used: they load all messages of the protocol
    from moldau.client.admin.transactions import HangingTransaction
    from moldau.wire.messages.describe_producers import ProducerState
    from moldau.wire.messages.describe_transactions import DescribedTransaction

NONE = -1  # no offset, epoch or sequence

app = App(name="txn", help="List and describe transactions; find hanging ones and abort them.")


STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
IDLE_STATES = ("Empty", "CompleteCommit", "CompleteAbort")

Topic = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TOPIC", autocompletion=complete_topic, help="Only this one.")
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one.")]
BrokerId = Annotated[
    int | None,
    typer.Option("--broker", metavar="ID", min=0, help="Ask this broker.", show_default="each partition's leader"),
]


@client_command(app, "list")
def list_all(
    context: CommandContext,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE,…", help="Only these: Ongoing, Empty, PrepareCommit, …"),
    ] = None,
    producer_ids: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="N", min=0, help="Only these.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="TIME", help="Only open ones that run for so long: 90s, 15m, PT15M."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Only ids that match it (RE2), as a whole.")
    ] = None,
) -> None:
    """List the transactional ids, with coordinator, producer id and state."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.transactions import Filters, list_transactions

    filters = Filters(
        tuple(sorted(read_choices(states, "--state", STATES))),
        tuple(producer_ids or ()),
        None if longer_than is None else read_length(longer_than, "--longer-than"),
        pattern,
    )
    with open_cluster(context.target) as cluster:
        found = list_transactions(cluster, filters)
    columns = ("transactional_id", "coordinator", "producer_id", "state")
    rows = [(row.transactional_id, node_id, row.producer_id, row.transaction_state) for node_id, row in found]
    print_rows(context, columns, rows, "No transactions" + (" like that." if filters != Filters() else " yet."))


def read_length(text: str, name: str) -> int:
    try:
        return read_span(text)
    except ValueError as error:
        raise misused(f"{name} {error}") from None


def print_rows(context: CommandContext, columns: tuple[str, ...], rows: list[tuple[Any, ...]], nothing: str) -> None:
    if context.json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table([column.upper().replace("_", " ") for column in columns], rows)
    else:
        note(nothing)


@client_command(app, "describe")
def describe(
    context: CommandContext,
    names: Annotated[
        list[str],
        typer.Argument(metavar="TRANSACTIONAL-ID…", autocompletion=complete_transactional_id, show_default=False),
    ],
) -> None:
    """Show state, producer, time-out, age and partitions of transactional ids."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.transactions import describe_transaction

    documents = []
    with open_cluster(context.target) as cluster:
        for name in dict.fromkeys(names):
            found = describe_transaction(cluster, name)
            if found is None:
                raise NoSuchTransactionalId(name)
            documents.append(transaction_document(*found, now_ms()))
    if context.json:
        print_json(documents)
        return
    for index, document in enumerate(documents):
        if index:
            print_text("")
        _print_transaction(document)


def now_ms() -> int:
    return int(time.time() * 1000)


def transaction_document(node_id: int, found: "DescribedTransaction", now: int) -> dict[str, Any]:
    started = found.transaction_start_time_ms
    return {
        "transactional_id": found.transactional_id,
        "state": found.transaction_state,
        "coordinator": node_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started": show_time(started),
        "running_seconds": max(0, now - started) / 1000 if started > NONE else None,
        "partitions": [
            {"topic": topic.topic, "partition": partition} for topic in found.topics for partition in topic.partitions
        ],
    }


def _print_transaction(document: dict[str, Any]) -> None:
    print_text(f"Transactional id {document['transactional_id']}  state {document['state']}")
    print_text(f"  coordinator {document['coordinator']}, time-out {document['timeout_ms']} ms")
    print_text(f"  producer {document['producer_id']}, epoch {document['producer_epoch']}")
    if document["started"]:
        print_text(f"  started {document['started']}, {document['running_seconds']} s ago")
    partitions = show_partitions([TopicPartition(**tp) for tp in document["partitions"]])
    if partitions:
        print_text(f"  partitions {partitions}")


@client_command(app, "producers")
def producers(
    context: CommandContext,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)],
    partition: Partition = None,
    broker: BrokerId = None,
) -> None:
    """Show the active producers of a topic's partitions, and their open transactions."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.transactions import find_partitions, read_producers

    with open_cluster(context.target) as cluster:
        found = read_producers(cluster, find_partitions(cluster, topic, partition, broker))
    rows = [producer_row(tp, one) for tp, some in found for one in some]
    print_rows(context, PRODUCER_COLUMNS, rows, "No active producers.")


PRODUCER_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_time",
    "start_offset",
)


def producer_row(tp: TopicPartition, one: "ProducerState") -> tuple[Any, ...]:
    return (
        *tp,
        one.producer_id,
        one.producer_epoch,
        one.coordinator_epoch if one.coordinator_epoch > NONE else None,
        one.last_sequence if one.last_sequence > NONE else None,
        show_time(one.last_timestamp),
        one.current_txn_start_offset if one.current_txn_start_offset > NONE else None,
    )


@client_command(app, "find-hanging")
def find_hanging_transactions(
    context: CommandContext,
    topic: Topic = None,
    partition: Partition = None,
    broker: BrokerId = None,
    longest: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout",
            metavar="TIME",
            help="Ignore those that wrote since: 90s, 15m, PT15M. The brokers' transaction.max.timeout.ms.",
        ),
    ] = "15m",
) -> None:
    """Find transactions that are open in a partition and that no coordinator will ever end.

    Consumers with read_committed stop in front of them. Abort them with: moldau txn abort
    """
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.transactions import find_hanging, find_partitions

    longer_than_ms = read_length(longest, "--max-transaction-timeout")
    if partition is not None and topic is None:
        raise misused("--partition needs --topic")
    now = now_ms()
    with open_cluster(context.target) as cluster:
        found = find_hanging(cluster, find_partitions(cluster, topic, partition, broker), longer_than_ms, now)
    columns = (*PRODUCER_COLUMNS, "idle_seconds")
    rows = [
        (*producer_row(one.partition, one.producer), max(0, now - one.producer.last_timestamp) / 1000) for one in found
    ]
    print_rows(context, columns, rows, "No hanging transactions.")
    if found and not context.json:
        topic, partition = found[0].partition
        words = f"txn abort --topic {topic} --partition {partition} --start-offset {found[0].start_offset}"
        note(f"Abort the first with: {suggest(words)}")


@client_command(app, "abort")
def abort(
    context: CommandContext,
    name: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            autocompletion=complete_transactional_id,
            help="Abort its open transaction, and fence its producer.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", autocompletion=complete_topic, help="The partition in which it hangs."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="The partition in which it hangs.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", min=0, help="Its first offset there.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", min=0, help="Its producer, instead of --start-offset.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", min=0, max=32767, help="With --producer-id.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option("--coordinator-epoch", metavar="N", min=-1, max=2**31 - 1, help="With --producer-id."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Abort a transaction: one that hangs in a partition, or that of a transactional id.

    Only for transactions that `moldau txn find-hanging` lists: a live one loses its records.
    """
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.transactions import abort_transaction, describe_transaction

    transaction = read_transaction(name, topic, partition, start_offset, producer_id, producer_epoch, coordinator_epoch)
    where = f"transactional id {transaction}" if isinstance(transaction, str) else str(transaction.partition)
    if not yes:
        require_yes("aborting a transaction", f"Abort the transaction of {where}?")
    with open_cluster(context.target) as cluster:
        found = describe_transaction(cluster, transaction) if isinstance(transaction, str) else None
        abort_transaction(cluster, transaction)
    idle = found is not None and found[1].transaction_state in IDLE_STATES
    if context.json:
        outcome = "fenced" if idle else "aborted"
        print_json({"transactional_id": name, "topic": topic, "partition": partition, "outcome": outcome})
    elif idle:
        print_text(f"There was no open transaction of {where}; its producer is fenced.")
    else:
        print_text(f"Aborted the transaction of {where}.")


def read_transaction(
    name: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> "str | HangingTransaction":
    """The transaction that the options name: in exactly one way, and completely."""
    from moldau.client.admin.transactions import HangingTransaction, ProducerEpoch

    producer = (producer_id, producer_epoch, coordinator_epoch)
    by_producer = any(number is not None for number in producer)
    in_place = by_producer or any(part is not None for part in (topic, partition, start_offset))
    if name is not None:
        if in_place:
            raise misused("--transactional-id cannot be combined with the other options", remedy=HOW_TO_ABORT)
        return name
    if topic is None or partition is None:
        raise misused("no transaction was given" if not in_place else "no partition was given", remedy=HOW_TO_ABORT)
    tp = TopicPartition(topic, partition)
    if start_offset is not None and not by_producer:
        return HangingTransaction(tp, start_offset)
    if start_offset is None and producer_id is not None and producer_epoch is not None:
        return HangingTransaction(
            tp, ProducerEpoch(producer_id, producer_epoch, NONE if coordinator_epoch is None else coordinator_epoch)
        )
    raise misused("the options do not name one transaction", remedy=HOW_TO_ABORT)


HOW_TO_ABORT = (
    "Give --transactional-id, or --topic, --partition and --start-offset; instead of the last one also "
    "--producer-id and --producer-epoch"
)
