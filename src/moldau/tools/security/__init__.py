"""`moldau security`: what clients may do."""
