"""`moldau acl`: ACLs of a cluster."""
