"""The group and transaction coordinators: a runtime for the state machines of groups/ and transactions/."""
