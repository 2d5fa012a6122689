"""Server-side assignors (KIP-848): range and uniform."""
