"""Kafka source and sink, based on confluent-kafka (librdkafka). See docs/connect/kafka.md."""
