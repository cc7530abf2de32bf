"""Connections of the webhook port: their bytes, time limits and queues; no HTTP answers and no reviews."""
