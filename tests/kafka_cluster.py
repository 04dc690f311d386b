"""A cluster of librdkafka's mock brokers, in this process but reachable from others.

It speaks Kafka's protocol and keeps records in memory. Limitations: it does not hide the records of open or aborted
transactions, does not fence an older producer, and does not find records by timestamp. It also does not keep offsets
that are sent to a transaction; kafka_ledger.py adds that.
"""

import ctypes
import uuid
from pathlib import Path

import confluent_kafka
from kafka_ledger import Relay

_TIMEOUT_S = 30


class MockCluster:
    """A cluster of one broker. Tests create topics with any number of partitions."""

    def __init__(self):
        site = Path(confluent_kafka.__file__).parents[1]
        self._library = ctypes.CDLL(str(next(site.glob("confluent_kafka.libs/librdkafka*"))))
        configuration = self._call("rd_kafka_conf_new", ctypes.c_void_p)
        self._holder = self._call(
            "rd_kafka_new", ctypes.c_void_p, ctypes.c_int(0), ctypes.c_void_p(configuration), None, ctypes.c_size_t(0)
        )
        self._cluster = ctypes.c_void_p(
            self._call("rd_kafka_mock_cluster_new", ctypes.c_void_p, ctypes.c_void_p(self._holder), ctypes.c_int(1))
        )
        host, port = self._call("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, self._cluster).decode().split(":")
        self._relay = Relay((host, int(port)))
        self.servers = f"127.0.0.1:{self._relay.port}"
        # Otherwise clients bypass the relay once they know the broker.
        self._call(
            "rd_kafka_mock_broker_set_host_port",
            ctypes.c_int,
            self._cluster,
            ctypes.c_int32(1),
            ctypes.c_char_p(b"127.0.0.1"),
            ctypes.c_int(self._relay.port),
        )
        self._refused = set()
        self._call("rd_kafka_mock_start_request_tracking", None, self._cluster)
        self._producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})

    def topic(self, partitions=1, name=None):
        """Create a topic and return its name."""
        name = name or f"topic-{uuid.uuid4().hex}"
        self._of_topic("rd_kafka_mock_topic_create", name, ctypes.c_int(partitions), ctypes.c_int(1))
        return name

    def delete(self, topic):
        self._of_topic("rd_kafka_mock_topic_delete", topic)

    def delete_records(self, topic, partition, before):
        """Delete records, like a topic's retention."""
        self._of_topic(
            "rd_kafka_mock_partition_delete_records", topic, ctypes.c_int32(partition), ctypes.c_int64(before)
        )

    def refuse(self, request, *codes):
        """Answer the next requests of this type (a number of Kafka's protocol) with errors."""
        self._refused.add(request)
        self._call(
            "rd_kafka_mock_push_request_errors_array",
            ctypes.c_int,
            self._cluster,
            ctypes.c_int16(request),
            ctypes.c_size_t(len(codes)),
            (ctypes.c_int * len(codes))(*codes),
        )

    def refuse_no_more(self):
        for request in self._refused:
            self._call("rd_kafka_mock_clear_request_errors", None, self._cluster, ctypes.c_int16(request))
        self._refused.clear()

    def requests(self):
        """Return the types of the requests since the last call, in order."""
        count = ctypes.c_size_t()
        found = self._call(
            "rd_kafka_mock_get_requests", ctypes.POINTER(ctypes.c_void_p), self._cluster, ctypes.byref(count)
        )
        kinds = [
            self._call("rd_kafka_mock_request_api_key", ctypes.c_int16, ctypes.c_void_p(found[number]))
            for number in range(count.value)
        ]
        self._call("rd_kafka_mock_request_destroy_array", None, found, count)
        self._call("rd_kafka_mock_clear_requests", None, self._cluster)
        return kinds

    def send(self, topic, *values, partition=0, key=None, timestamp=0, headers=None):
        for value in values:
            self._producer.produce(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=_delivered
            )
        assert self._producer.flush(_TIMEOUT_S) == 0

    def send_in_transaction(self, topic, *values, partition=0):
        """Send values in a transaction. Its end marker occupies an offset that consumers do not receive."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.commit_transaction(_TIMEOUT_S)

    def messages(self, topic, partitions=1):
        """Return all messages of a topic, partition by partition."""
        settings = {"group.id": "looks", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, **settings})
        found = []
        for partition in range(partitions):
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
            while (message := consumer.poll(_TIMEOUT_S)) is not None and message.error() is None:
                found.append(message)
            assert message is not None, f"no answer from {self.servers}"
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
        consumer.close()
        return found

    def values(self, topic, partitions=1):
        return [message.value() for message in self.messages(topic, partitions)]

    def committed(self, group, topic, partition=0):
        """Return the committed offset of a group."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": group})
        found = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], _TIMEOUT_S)[0].offset
        consumer.close()
        return found

    def close(self):
        del self._producer
        self._relay.close()
        self._call("rd_kafka_mock_cluster_destroy", None, self._cluster)
        self._call("rd_kafka_destroy", None, ctypes.c_void_p(self._holder))

    def _of_topic(self, function, topic, *arguments):
        error = self._call(function, ctypes.c_int, self._cluster, ctypes.c_char_p(topic.encode()), *arguments)
        assert error == 0, f"{function}: {confluent_kafka.KafkaError(error)}"

    def _call(self, function, result, *arguments):
        function = getattr(self._library, function)
        function.restype = result
        return function(*arguments)


def _delivered(error, message):
    assert error is None, error
