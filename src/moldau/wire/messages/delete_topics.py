"""DeleteTopics: delete topics by name or by id.

Version 5 adds error messages. Version 6 has names or ids in one list; earlier versions a list of names, here
states with a name.
"""

from uuid import UUID

from moldau.wire.declare import INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME, Array, message, older_form, struct, wire
from moldau.wire.primitives import ZERO_UUID, Unencodable


@struct
class DeleteTopicState:
    name: str | None = wire(TOPIC_NAME, nullable=0, default=None)  # or the id
    topic_id: UUID = wire(TOPIC_ID, default=ZERO_UUID)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = wire(Array(DeleteTopicState))
    timeout_ms: int = wire(INT32)


@older_form(of=DeleteTopicsRequest, until=5)
class DeleteTopicsByName:
    topic_names: tuple[str, ...] = wire(Array(TOPIC_NAME))
    timeout_ms: int = wire(INT32)

    def to_newest(self) -> DeleteTopicsRequest:
        topics = tuple(DeleteTopicState(name=name) for name in self.topic_names)
        return DeleteTopicsRequest(topics=topics, timeout_ms=self.timeout_ms)

    @classmethod
    def from_newest(cls, newest: DeleteTopicsRequest) -> "DeleteTopicsByName":
        names = tuple(topic.name for topic in newest.topics if topic.name is not None)
        if len(names) < len(newest.topics):
            raise Unencodable("DeleteTopicsRequest before version 6 cannot name a topic by its id")
        return cls(topic_names=names, timeout_ms=newest.timeout_ms)


@struct
class DeletableTopicResult:
    name: str | None = wire(TOPIC_NAME, nullable=6)
    topic_id: UUID = wire(TOPIC_ID, since=6, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[DeletableTopicResult, ...] = wire(Array(DeletableTopicResult))
