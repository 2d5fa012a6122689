"""`moldau produce`, `moldau consume` and `moldau perf`: read and write records."""
