"""`moldau product`: the products of organisations."""
