"""`moldau partition`: reassign, replicate and elect."""
