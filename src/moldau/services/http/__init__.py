"""The common ground of HTTP services: listening, errors, limits, authentication. Knows no service."""
