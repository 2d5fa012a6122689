"""Simulated clusters: the real replication code in one process, with a virtual clock, network and disk."""
