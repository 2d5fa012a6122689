"""`moldau log`: dump and verify a broker's files on disk."""
