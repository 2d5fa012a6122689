"""Consumer groups and their committed offsets as pure machines: decide and apply. Knows no log, clock or socket."""
