"""A raw connection to a broker: frames out, frames in. kafka-python encodes the messages; nothing of Moldau is used.

It never reconnects or retries, so a test sees exactly what the broker sent.
"""

import socket
import struct
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from support.log.batches import Producer, Stored, read_batches

NO_TOPIC = UUID(int=0)
COORDINATOR_LOAD_IN_PROGRESS = 14
TOPIC, BROKER = 2, 4  # types of config resources
BY_ID_PRODUCE, BY_ID_FETCH = 13, 13  # from these versions on topics are identified by id


class ConnectionEndedError(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection. `ask` sends a message and decodes the response; the other methods work on bytes."""

    def __init__(self, bootstrap: str, timeout: float = 30) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    # -- bytes

    def send_frame(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError:
                raise ConnectionEndedError from None
            if not part:
                raise ConnectionEndedError
            data += part
        return bytes(data)

    def read_frame(self) -> bytes:
        return self.read_exactly(struct.unpack(">i", self.read_exactly(4))[0])

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            return True

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing arrives, and the connection stays, for that long."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False

    # -- messages

    def frame(self, request: ApiMessage, version: int, client_id: str | None = "raw") -> bytes:
        """The request with size and header, with the next correlation id."""
        self.correlation += 1
        request.API_VERSION = version
        request.with_header(self.correlation, client_id)
        return bytes(request.encode(version=version, header=True, framed=True))

    def send(self, request: ApiMessage, version: int, client_id: str | None = "raw") -> int:
        self.socket.sendall(self.frame(request, version, client_id))
        return self.correlation

    def receive(self, request: ApiMessage) -> Any:
        """The response to `request`, which must be the next frame."""
        frame = self.read_frame()
        answer = request.header.get_response_class().decode(frame, header=True)
        assert answer.header.correlation_id == request.header.correlation_id, "responses come in the order of requests"
        return answer

    def receive_or_closed(self, request: ApiMessage) -> Any:
        """The response, or None if the broker closed the connection instead."""
        try:
            return self.receive(request)
        except ConnectionEndedError:
            return None

    def ask(self, request: ApiMessage, version: int, client_id: str | None = "raw") -> Any:
        self.send(request, version, client_id)
        return self.receive(request)

    # -- common requests

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> UUID:
        item = CreateTopicsRequest.CreatableTopic
        listed = [item.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        wanted = item(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=listed)
        answer = self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 7).topics[0]
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        return self.wait_for_topic(name, partitions)

    def wait_for_topic(self, name: str, partitions: int) -> UUID:
        """The topic's id, once all partitions are served. Apache Kafka lists a topic a moment before it serves it."""
        while True:
            found = self.metadata(name)
            served = found.error_code == 0 and all(part.error_code == 0 for part in found.partitions)
            if served and len(found.partitions) == partitions:
                errors = {self.list_offset(name, -1, partition).error_code for partition in range(partitions)}
                if errors <= {0}:
                    return UUID(str(found.topic_id))

    def delete_topics(self, names: list[str]) -> list[int]:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=NO_TOPIC) for name in names]
        answer = self.ask(DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6)
        return [each.error_code for each in answer.responses]

    def metadata(self, name: str, version: int = 12, create: bool = False) -> Any:
        asked = MetadataRequest.MetadataRequestTopic(name=name, topic_id=NO_TOPIC)
        return self.ask(MetadataRequest(topics=[asked], allow_auto_topic_creation=create), version).topics[0]

    def topic_id(self, name: str) -> UUID:
        return UUID(str(self.metadata(name).topic_id))

    def produce_request(self, name: str, records: bytes | None, partition: int = 0, acks: int = -1, **by: Any) -> Any:
        data = ProduceRequest.TopicProduceData(
            name=name,
            topic_id=by.get("topic_id", NO_TOPIC),
            partition_data=[ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=records)],
        )
        name_of_transactions = by.get("transactional_id")
        return ProduceRequest(transactional_id=name_of_transactions, acks=acks, timeout_ms=10_000, topic_data=[data])

    def produce(self, name: str, records: bytes | None, partition: int = 0, acks: int = -1, version: int = 12) -> Any:
        """Produce one batch; return the response for its partition."""
        by = {"topic_id": self.topic_id(name)} if version >= BY_ID_PRODUCE else {}
        answer = self.ask(self.produce_request(name, records, partition, acks, **by), version)
        return answer.responses[0].partition_responses[0]

    def fetch_request(self, name: str, offset: int, partition: int = 0, **options: Any) -> Any:
        topic = FetchRequest.FetchTopic
        wanted = topic.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=options.get("leader_epoch", -1),
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=options.get("partition_max_bytes", 1 << 20),
        )
        topics = [topic(topic=name, topic_id=options.get("topic_id", NO_TOPIC), partitions=[wanted])]
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=options.get("max_wait_ms", 500),
            min_bytes=options.get("min_bytes", 1),
            max_bytes=options.get("max_bytes", 50 << 20),
            isolation_level=options.get("isolation", 0),
            session_id=options.get("session_id", 0),
            session_epoch=options.get("session_epoch", -1),
            topics=topics if name else [],
            forgotten_topics_data=options.get("forgotten", []),
            rack_id="",
        )

    def fetch(self, name: str, offset: int, partition: int = 0, version: int = 12, **options: Any) -> Any:
        """Fetch from one partition; return the response for it."""
        if version >= BY_ID_FETCH and "topic_id" not in options:
            options["topic_id"] = self.topic_id(name)
        answer = self.ask(self.fetch_request(name, offset, partition, **options), version)
        assert answer.error_code == 0, answer.error_code
        return answer.responses[0].partitions[0]

    def fetched(self, name: str, offset: int = 0, partition: int = 0, **options: Any) -> list[Stored]:
        """Fetch from one partition; return the batches."""
        return read_batches(bytes(self.fetch(name, offset, partition, **options).records or b""))

    def list_offset(
        self,
        name: str,
        timestamp: int,
        partition: int = 0,
        version: int = 9,
        leader_epoch: int = -1,
        isolation: int = 0,
    ) -> Any:
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[topic(name=name, partitions=[asked])], timeout_ms=10_000
        )
        return self.ask(request, version).topics[0].partitions[0]

    def new_producer(self) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = self.ask(request, 4)
        while answer.error_code == COORDINATOR_LOAD_IN_PROGRESS:  # Apache Kafka while it fetches its first block of ids
            answer = self.ask(request, 4)
        assert answer.error_code == 0, answer.error_code
        return Producer(answer.producer_id, answer.producer_epoch)

    def configs(self, name: str, kind: int = TOPIC) -> dict[str, str | None]:
        """The settings of a topic, defaults included."""
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[wanted], include_synonyms=False, include_documentation=False)
        return {row.name: row.value for row in self.ask(request, 4).results[0].configs}

    def broker_configs(self) -> dict[str, str | None]:
        """The settings of the broker, defaults included."""
        brokers = self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).brokers
        return self.configs(str(brokers[0].node_id), BROKER)

    def cluster_id(self) -> str:
        return str(self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).cluster_id)

    def delete_records(self, name: str, offset: int, partition: int = 0) -> int:
        """Delete records up to an offset; return the new log start offset."""
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[topic(name=name, partitions=[part])], timeout_ms=10_000)
        answer = self.ask(request, 2).topics[0].partitions[0]
        assert answer.error_code == 0, answer.error_code
        return int(answer.low_watermark)

    def log_dirs(self) -> list[Any]:
        return list(self.ask(DescribeLogDirsRequest(topics=None), 4).results)
