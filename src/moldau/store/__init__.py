"""The coordination store: a small versioned tree with watches, ephemeral nodes and multi."""
