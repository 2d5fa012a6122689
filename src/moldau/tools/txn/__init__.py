"""`moldau txn`: list, describe and abort transactions."""
