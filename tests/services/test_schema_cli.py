"""`moldau schema` and `moldau registry` on the command line."""

import json
from pathlib import Path

import pytest

from support.brokers.processes import AnyBroker
from support.clients.cli import Run, fail, runner, succeed
from support.services.registry import RegistryProcess, record


@pytest.fixture
def moldau(broker: AnyBroker, registry: RegistryProcess) -> Run:
    run = runner(broker.bootstrap)

    def with_registry(*arguments: str, stdin: str = "") -> object:
        where = ("--registry", registry.url) if arguments[0] == "schema" else ()
        return run(*arguments, *where, stdin=stdin)

    return with_registry  # type: ignore[return-value]


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(record("Order", id="long")))
    return path


def changed(order: Path, kind: str) -> str:
    path = order.with_name(f"{kind}.avsc")
    path.write_text(json.dumps(record("Order", id=kind)))
    return str(path)


def test_a_schema_from_its_registration_to_its_end(moldau: Run, order: Path, subject: str) -> None:
    said = succeed(moldau("schema", "register", subject, str(order)))
    assert said.startswith(f"{subject} has it as version 1, with id ")
    assert succeed(moldau("schema", "register", subject, str(order))) == said
    rows = json.loads(succeed(moldau("schema", "list", subject, "-o", "json")))
    assert [(row["subject"], row["type"], row["versions"]) for row in rows] == [(subject, "AVRO", [1])]
    assert subject in succeed(moldau("schema", "list"))
    shown = succeed(moldau("schema", "describe", subject))
    assert "BACKWARD" in shown
    assert '"name": "Order"' in shown
    succeed(moldau("schema", "check", subject, changed(order, "double")))
    fail(moldau("schema", "check", subject, changed(order, "string")), 1, "would not take this schema", "/fields/0")
    fail(moldau("schema", "register", subject, changed(order, "string")), 1, "incompatible", "40901")
    succeed(moldau("schema", "register", subject, changed(order, "double"), "--dry-run"))
    succeed(moldau("schema", "register", subject, changed(order, "double")))
    difference = succeed(moldau("schema", "diff", subject, "1"))
    assert '-      "type": "long"' in difference
    assert '+      "type": "double"' in difference
    assert "Would delete" in succeed(moldau("schema", "delete", subject, "--dry-run"))
    fail(moldau("schema", "delete", subject), 2, "needs confirmation")
    assert succeed(moldau("schema", "delete", subject, "--version", "1", "-y")).startswith("Deleted")
    assert "2 versions: 1, 2" in succeed(moldau("schema", "delete", subject, "--permanent", "-y"))
    fail(moldau("schema", "describe", subject), 1, "not found", "40401")


def test_a_schema_with_a_reference_from_stdin(moldau: Run, order: Path, subject: str) -> None:
    succeed(moldau("schema", "register", f"{subject}-order", str(order)))
    text = json.dumps({"type": "record", "name": "Invoice", "fields": [{"name": "order", "type": "Order"}]})
    reference = ("--reference", f"Order={subject}-order:1")
    succeed(moldau("schema", "register", subject, "-", *reference, stdin=text))
    assert f"Order={subject}-order:1" in succeed(moldau("schema", "describe", subject))
    fail(moldau("schema", "delete", f"{subject}-order", "-y"), 1, "42206")


def test_mistakes(moldau: Run, broker: AnyBroker, order: Path, subject: str) -> None:
    fail(moldau("schema", "register", subject, "missing.avsc"), 2, "cannot read missing.avsc")
    fail(moldau("schema", "register", subject, str(order), "--type", "XML"), 2, "--type 'XML' is not known")
    fail(moldau("schema", "register", subject, str(order), "--reference", "x"), 2, "NAME=SUBJECT:VERSION")
    run = runner(broker.bootstrap)
    fail(run("schema", "list", "--registry", "http://127.0.0.1:1"), 1, "127.0.0.1:1", "refused")
    fail(run("schema", "list", "--registry", "localhost"), 2, "is no address of a schema registry")
    fail(run("registry", "--listen", "nowhere"), 2, "--listen", "HOST:PORT")
    fail(run("registry", "--authentication", "MAGIC"), 2, "MAGIC")


def test_a_port_in_use_is_one_line(broker: AnyBroker, registry: RegistryProcess) -> None:
    run = runner(broker.bootstrap)
    said = run("registry", "--listen", f"127.0.0.1:{registry.port}")
    fail(said, 1, f"127.0.0.1:{registry.port}", "address already in use")
