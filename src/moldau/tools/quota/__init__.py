"""`moldau quota`: list, describe, set and delete quotas."""
