"""Server-side assignors (KIP-848): who of a group shall read which partition."""
