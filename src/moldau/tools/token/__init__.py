"""`moldau token`: delegation tokens."""
