"""Consumer groups for tests: real members as processes or threads, and the coordinator's state without a broker."""
