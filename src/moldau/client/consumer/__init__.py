"""Consumer: groups, partitions, progress and commits. The poll thread belongs to the engine, the body to the user."""
