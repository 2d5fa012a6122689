"""Replicas for tests: partitions in one process, a simulated cluster, a ZooKeeper ensemble in memory."""
