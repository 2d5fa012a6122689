"""`moldau user`: users with SCRAM credentials."""
