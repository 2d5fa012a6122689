"""Real clients on a real cluster under faults, with histories that a checker reads: `python -m chaos`."""
