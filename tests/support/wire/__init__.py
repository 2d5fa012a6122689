"""Wire messages for tests: request frames of every API and version, and hypothesis strategies."""
