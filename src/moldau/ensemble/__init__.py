"""ZooKeeper servers as child processes, for tests and for `moldau zookeeper`."""
