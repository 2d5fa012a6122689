"""Consumer groups and committed offsets as pure state machines: decide and apply. No log, clock or socket."""
