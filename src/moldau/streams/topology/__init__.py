"""A program of Streams as a value: inputs, operators, windows, joins and outputs, checked when they are built."""
