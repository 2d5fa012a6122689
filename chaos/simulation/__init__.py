"""Simulated clusters: the real replication code in one process, with a virtual clock, network and disk."""

import sys

from moldau import compiled

# Parts of the broker are replaced here by simulated ones, which compiled modules do not allow.
if compiled.modules in sys.meta_path:
    sys.meta_path.remove(compiled.modules)
