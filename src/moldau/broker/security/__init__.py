"""The rim of the room `security`: logins of connections and of this broker, stored credentials, delegation tokens."""
