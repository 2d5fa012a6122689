"""Apache Kafka for tests: its jars, its command line tools, one JVM for all of them."""
