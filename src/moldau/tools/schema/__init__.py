"""`moldau schema`: schemas of a registry."""
