"""The cluster's state as an immutable image, and the changes that make a new one. Pure."""
