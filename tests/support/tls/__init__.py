"""Certificates and TLS clients for tests."""
