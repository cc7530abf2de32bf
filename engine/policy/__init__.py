"""The admin's policy: schema, validation, and which version is in force."""
