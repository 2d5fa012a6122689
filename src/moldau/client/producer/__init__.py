"""Producer and AsyncProducer: records to topics over librdkafka, with typed outcomes."""
