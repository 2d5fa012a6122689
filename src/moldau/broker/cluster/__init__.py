"""A broker's part in its cluster: metadata feed, registration, controller election, failure detection."""
