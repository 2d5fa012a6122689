"""Database servers for tests: PostgreSQL and MariaDB, each in a temporary directory, if the machine has them."""
