"""Kafka as source and sink, through confluent-kafka and so librdkafka; see docs/connect/kafka.md."""
