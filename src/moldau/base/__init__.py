"""Values that all rooms share: wire errors, settings, ids, sessions. Pure."""
