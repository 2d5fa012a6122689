"""Reading `format("moldau")`: batch queries and streams, straight from brokers into Arrow."""
