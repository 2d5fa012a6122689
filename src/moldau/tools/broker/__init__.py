"""`moldau up` and `moldau broker`: start one broker on this machine."""
