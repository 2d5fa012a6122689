"""`moldau cluster` and `moldau zookeeper`: run, describe and check clusters."""
