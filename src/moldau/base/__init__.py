"""Pure ground: wire errors, settings engine, kinds of integers."""
