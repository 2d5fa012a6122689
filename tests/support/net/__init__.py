"""Event loops, sockets and peers for tests of the network room."""
