"""A cluster in one process: the rooms of replication on a virtual clock, a network of pipes and files in memory."""
