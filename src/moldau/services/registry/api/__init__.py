"""The registry's REST interface: a table of endpoints, a function each, and the dispatch between HTTP and them."""
