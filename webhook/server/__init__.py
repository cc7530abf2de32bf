"""HTTPS with parked connections under gunicorn, and the plain port for health and metrics."""
