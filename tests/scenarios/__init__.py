"""Scripts with recorded output for the machines of groups and transactions: see `script` for what one looks like."""
