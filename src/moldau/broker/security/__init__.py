"""Security of a broker: logins of its connections, stored credentials, tokens, and authorization of requests."""
