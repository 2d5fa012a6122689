"""The command line, one package per noun; no logic of its own beyond arguments, output and exit codes."""
