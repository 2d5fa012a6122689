"""`moldau org`: organisations, their members and what they use."""
