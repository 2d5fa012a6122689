"""`moldau pipeline` and `moldau spark`: Spark pipelines."""
