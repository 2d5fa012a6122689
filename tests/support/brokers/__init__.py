"""Brokers for tests: processes, nodes in the test's own loop, ZooKeeper servers, and the files that a broker wrote."""
