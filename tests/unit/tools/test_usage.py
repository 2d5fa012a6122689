"""Every way to use the command wrongly that needs no broker: one clear line, exit code 2."""

import shlex
import sys

import pytest

from moldau.tools.main import run


@pytest.fixture(autouse=True)
def _own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command puts its own there; this takes it back
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "127.0.0.1:1")


# command line → words of the answer
MISUSES = {
    "topic create cli-x -c retention.ms": ("--set", "key=value"),
    "topic create cli-x --set retention.ms": ("--set", "key=value"),
    "topic create cli-x -p 0": ("--partitions", "0 is less than 1"),
    "topic create cli-x -p many": ("--partitions", "'many' is not a whole number"),
    "topic create cli-x -p 100001": ("--partitions", "100001 is more than 100000"),
    f"topic create cli-x -p {'9' * 5000}": ("--partitions", "too large"),
    "topic create cli-x -r 32768": ("--replication", "32768 is more than 32767"),
    "topic alter t -p 100001": ("--partitions", "100001 is more than 100000"),
    "perf produce t --rate fast": ("--rate", "'fast' is not a number"),
    "topic create": ("TOPIC", "moldau topic create --help"),
    "topic alter t": ("nothing to change",),
    "topic delete t": ("--yes",),
    "topic creat x": ("Did you mean 'create'?",),
    "produce t -p x": ("--partition",),
    "produce t -H nope": ("--header", "key=value"),
    "produce t --timestamp soon": ("--timestamp",),
    "produce t --file /no/such/file": ("/no/such/file",),
    "produce t --acks 2": ("--acks",),
    "produce t --acks 1 --idempotent": ("--idempotent",),
    "produce t --compression rar": ("--compression", "zstd"),
    "produce t --key-separator ''": ("--key-separator",),
    "consume t --from x": ("--from", "not a position"),
    "consume t --from @x": ("ISO 8601",),
    "consume t --until x": ("--until",),
    "consume t -n 0": ("--max",),
    "consume t --format xml": ("--format",),
    "consume t --group ''": ("--group is empty",),
    "consume t --group g -p 0": ("--partition", "--group"),
    "consume t --group g --from 5": ("reset-offsets",),
    "consume t --group g --from @2026-01-31T12:00": ("reset-offsets",),
    "consume t --group g --until 5": ("--until",),
    "consume t --group g --protocol share": ("--protocol", "consumer"),
    "consume t --protocol consumer": ("--group",),
    "up --zookeeper ''": ("--zookeeper is empty",),
    "zookeeper --nodes 0": ("--nodes",),
    "zookeeper --nodes many": ("--nodes", "moldau zookeeper --help"),
    "zookeeper --port 65536": ("--port",),
    "zookeeper --port 64000 --nodes 3": ("--port 64000", "1707 above"),
    "zookeeper --dir ''": ("--dir is empty",),
    "zookeeper more": ("more",),
    "group list --state sleepy": ("--state 'sleepy'", "Stable"),
    "group list --type classic,share": ("--type 'share'", "consumer"),
    "group reset-offsets": ("GROUP",),
    "group reset-offsets g -t t": ("no target", "--to-earliest"),
    "group reset-offsets g -t t --to-earliest --to-latest": ("--to-earliest and --to-latest",),
    "group reset-offsets g -t t --to-offset x": ("--to-offset",),
    "group reset-offsets g -t t --shift-by x": ("--shift-by",),
    "group reset-offsets g -t t --to-datetime soon": ("--to-datetime", "ISO 8601"),
    "group reset-offsets g -t t --by-duration 15": ("--by-duration", "15m"),
    "group reset-offsets g --to-latest": ("no topic", "--all-topics"),
    "group reset-offsets g --to-latest -t t --all-topics": ("--all-topics",),
    "group reset-offsets g --to-latest -t t:x": ("--topic", "NAME:0,1"),
    "group reset-offsets g --from-file /no/such/plan": ("/no/such/plan",),
    "group reset-offsets g --from-file /dev/null": ("no line for group 'g'",),
    "group reset-offsets g --to-latest -t t --export -o json": ("--export",),
    "group delete": ("GROUP",),
    "group delete g": ("--yes",),
    "group delete-offsets g": ("--topic",),
    "group delete-offsets g -t t:": ("--topic",),
    "group delet g": ("Did you mean 'delete'",),
    "txn list --state sleepy": ("--state", "Ongoing"),
    "txn list --producer-id x": ("--producer-id",),
    "txn list --longer-than 15": ("--longer-than", "15m"),
    "txn describe": ("TRANSACTIONAL-ID",),
    "txn producers": ("TOPIC",),
    "txn producers t -p x": ("--partition",),
    "txn find-hanging -p 0": ("--topic",),
    "txn find-hanging --broker x": ("--broker",),
    "txn find-hanging --max-transaction-timeout 15": ("--max-transaction-timeout", "15m"),
    "txn abort": ("no transaction was given", "--transactional-id"),
    "txn abort --transactional-id x -t t": ("--transactional-id cannot be combined",),
    "txn abort -t t --start-offset 5": ("no partition",),
    "txn abort -t t -p 0": ("do not name one transaction",),
    "txn abort -t t -p 0 --producer-id 5": ("do not name one transaction", "--producer-epoch"),
    "txn abort -t t -p 0 --producer-id 5 --producer-epoch 99999": ("--producer-epoch",),
    "txn abort -t t -p 0 --start-offset 1 --producer-id 5 --producer-epoch 1": ("do not name one transaction",),
    "txn abort -t t -p 0 --start-offset -1": ("--start-offset",),
    "txn abort -t t -p 0 --start-offset 1": ("--yes",),
    "cluster decommission": ("ID",),
    "cluster decommission x": ("ID",),
    "cluster decommission 3 --plan --run": ("--plan and --run",),
    "cluster decommission 3 --throttle 10MB": ("--run",),
    "cluster decommission 3 --run --throttle fast": ("--throttle 'fast'", "10MB"),
    "cluster up --brokers 0": ("--brokers",),
    "cluster up --port 65534": ("65536",),
    "cluster up --port 2180": ("share a port",),
    "cluster up --set nope": ("--set", "key=value"),
    "cluster up --set broker.id=5": ("--set broker.id", "all brokers"),
    "partition reassign": ("nothing to do", "--plan", "--run", "--cancel", "--list"),
    "partition reassign --run --cancel": ("--run and --cancel",),
    "partition reassign --plan --throttle 1MB": ("--throttle", "--run"),
    "partition reassign --cancel --no-wait": ("--no-wait", "--run"),
    "partition reassign --list --file plan.json": ("--file", "--topic"),
    "partition reassign --cancel --brokers 1": ("--brokers", "--topic"),
    f"partition reassign --plan --brokers 1,{'9' * 5000}": ("--brokers", "list of broker ids"),
    "partition reassign --run --brokers one": ("--brokers", "1,2,3"),
    "partition reassign --run --brokers 1,1": ("twice",),
    "partition reassign --run --topic t:x": ("--topic", "NAME:0,1"),
    "partition reassign --run --throttle 0": ("--throttle",),
    "partition reassign --run --file /no/such/plan": ("/no/such/plan",),
    "partition reassign --run --file /dev/null": ("not JSON",),
    "partition reassign --run --file /dev/null --topic t": ("Leave out",),
    "partition replicate": ("no topic was given", "Name topics, or give --internal"),
    "partition replicate t": ("--factor",),
    "partition replicate t --factor 0": ("--factor",),
    "partition replicate t --internal": ("--internal",),
    "partition elect --unclean": ("--yes",),
    "perf produce t -n 0": ("--records",),
    "perf produce t --rate 0": ("--rate",),
    "topic list -b host:port": ("HOST:PORT",),
    "topc": ("Did you mean 'topic'?",),
    "topic list --nope": ("--nope",),
    "topic list -o xml": ("json",),
    "topic list -X nope": ("key=value",),
    "up --listen nowhere": ("--listen", "HOST:PORT"),
    "up --nope": ("--nope", "moldau up --help"),
    "broker --set x": ("--set", "key=value"),
    "broker --config /no/such.properties": ("/no/such.properties",),
}


@pytest.mark.parametrize(("line", "words"), MISUSES.items(), ids=MISUSES)
def test_misuse_is_one_line_with_what_is_wrong(
    line: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(line)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("moldau: ")
    assert said.err.count("\n") == 1
    for word in words:
        assert word in said.err


def test_a_bug_is_one_line_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOLDAU_TRACEBACK", raising=False)
    run(["--version"])
    sys.excepthook(ValueError, ValueError("odd"), None)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ValueError: odd" in said
    assert "MOLDAU_TRACEBACK=1" in said


def test_an_unreachable_broker_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list"]) == 1
    assert capsys.readouterr().err == (
        "moldau: cannot reach a broker at 127.0.0.1:1 (connection refused). Is it running? Start one with: moldau up\n"
    )
