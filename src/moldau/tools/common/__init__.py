"""Shared parts of the commands: options, output, exit codes, signals, completion."""
