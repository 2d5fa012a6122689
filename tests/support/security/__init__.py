"""Security for tests: clients with principals, and the requests of the ACL matrix."""
