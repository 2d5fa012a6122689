"""Organisations at the edge of a broker: names, rights and limits of their members. Handlers know nothing of them."""
