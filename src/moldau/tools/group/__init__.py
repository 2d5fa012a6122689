"""`moldau group`: list, describe, delete and reset consumer groups."""
