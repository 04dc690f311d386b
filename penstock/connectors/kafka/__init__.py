"""Kafka source and sink, based on confluent-kafka (librdkafka). See docs/kafka.md."""
