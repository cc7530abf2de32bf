"""The rules of admission, one per file: whose pod it is, the marks and defaults to write, and what validation finds."""
