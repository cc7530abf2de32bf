"""The admin's policy: its schema, its validation, and which version is in force."""
