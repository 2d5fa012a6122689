"""The coordinators: a runtime that appends what the machines of groups/ and transactions/ decide, and answers."""
