"""What operators do with records, as pure functions and state machines: for the interpreter and for Spark's tasks."""
