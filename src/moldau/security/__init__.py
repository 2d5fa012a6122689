"""Principals, credentials, rights and quotas as values and rules. Pure: reads no files, opens no sockets."""
