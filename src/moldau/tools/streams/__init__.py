"""`moldau streams`: describe, run, watch, reset and test programs of Streams."""
