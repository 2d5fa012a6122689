"""What tests share: broker processes, raw sockets, record batches, files on disk, Kafka's Java tools. Holds no test."""
