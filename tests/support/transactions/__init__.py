"""Transactions for tests: the coordinator's state without a broker, and a copier that is killed as it copies."""
