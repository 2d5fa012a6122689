"""The rules for the records of a topic: its settings, with the schemas that its subjects have now. Pure."""

from functools import lru_cache

from moldau.broker.schemas.declared import Declared, declared, is_inline
from moldau.broker.schemas.subjects import StoredSchema, Subjects
from moldau.log.settings import LogConfig
from moldau.replication.record_rules import Framing, Mode, RecordRules, SchemaText, SideRule, Storage
from moldau.schemas import InvalidSchema, SchemaType, parse

NAMES_KEPT = 10_000  # of records, so that a new version does not mean to parse all schemas again
LETTER_MARGIN = 64 * 1024  # of bytes: a dead letter has more headers than its record


class UnknownSubject(Exception):
    """A topic names a subject or version that does not exist, or cannot be used. The text is a sentence."""


def rules_for(topic: str, config: LogConfig, subjects: Subjects) -> RecordRules:
    """The rules of a topic, or UnknownSubject."""
    key: list[SideRule] = []
    value: list[SideRule] = []
    sides = (
        (
            key,
            "key",
            config.confluent_key_schema_validation,
            config.confluent_key_subject_name_strategy,
            config.moldau_key_schema,
            config.moldau_key_schema_mode,
        ),
        (
            value,
            "value",
            config.confluent_value_schema_validation,
            config.confluent_value_subject_name_strategy,
            config.moldau_value_schema,
            config.moldau_value_schema_mode,
        ),
    )
    for rules, side, validates, strategy, schema, mode in sides:
        if validates:
            rules.append(_of_ids(topic, side, strategy.rpartition(".")[2], subjects))
        if is_inline(schema):
            text = SchemaText("JSON", schema)
            rules.append(SideRule("the schema of the topic", Mode(mode), Framing.IGNORED, (0,), ((0, text),)))
        elif schema:
            rules.append(_of_subject(declared(schema), Mode(mode), subjects))
    largest = config.max_message_bytes + LETTER_MARGIN
    return RecordRules(topic, Storage.of(config), largest, tuple(key), tuple(value))


def needs_subjects(config: LogConfig) -> bool:
    """Whether the topic's settings alone do not say what its records must be."""
    named = any(schema and not is_inline(schema) for schema in (config.moldau_key_schema, config.moldau_value_schema))
    return named or config.confluent_key_schema_validation or config.confluent_value_schema_validation


def _of_subject(named: Declared, mode: Mode, subjects: Subjects) -> SideRule:
    subject, version = named
    versions = subjects.versions(subject)
    if not versions:
        raise UnknownSubject(f"Subject {subject} has no schema; register one.")
    if version is not None:
        if version not in versions:
            raise UnknownSubject(f"Subject {subject} has no version {version}; register it, or change the topic.")
        versions = {version: versions[version]}
    newest = versions[max(versions)]
    texts = {}
    for schema in versions.values():
        text = subjects.text(subject, schema)
        if isinstance(text, str):
            raise UnknownSubject(f"A schema of subject {subject} cannot be used: {text}.")
        texts[schema.id] = text
    what = f"subject {subject}" if version is None else f"version {version} of subject {subject}"
    return SideRule(what, mode, Framing.OPTIONAL, tuple(texts), tuple(texts.items()), newest.id)


def _of_ids(topic: str, side: str, strategy: str, subjects: Subjects) -> SideRule:
    """Confluent Server's validation: the id must belong to the subject that the strategy names."""
    if strategy == "TopicNameStrategy":
        subject = f"{topic}-{side}"
        schemas = list(subjects.versions(subject).values())
        what = f"subject {subject}"
    else:
        prefix = f"{topic}-" if strategy == "TopicRecordNameStrategy" else ""
        schemas = [
            schema
            for subject in subjects.subjects()
            if subject.startswith(prefix)
            for schema in subjects.versions(subject).values()
            if _record_name(subjects, subject, schema) == subject[len(prefix) :]
        ]
        what = f"a subject {prefix}<record name>"
    ids = tuple(sorted({schema.id for schema in schemas}))
    guids = tuple(sorted({schema.guid for schema in schemas if schema.guid}))
    return SideRule(what, Mode.REJECT, Framing.REQUIRED, ids, guids=guids)


def _record_name(subjects: Subjects, subject: str, schema: StoredSchema) -> str | None:
    """The full name of a schema's record; None for a schema that cannot be read."""
    text = subjects.text(subject, schema)
    return None if isinstance(text, str) else _name_in(text)


@lru_cache(NAMES_KEPT)
def _name_in(text: SchemaText) -> str | None:
    try:
        return parse(SchemaType(text.type), text.text, dict(text.references)).full_name
    except InvalidSchema:
        return None
