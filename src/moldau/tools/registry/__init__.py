"""`moldau registry`: run a schema registry."""
