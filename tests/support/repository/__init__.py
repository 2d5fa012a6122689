"""The repository's own files for tests that read the code, and the distribution of tests over processes."""
