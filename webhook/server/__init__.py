"""Reviews over HTTPS under gunicorn, and the plain port for health and metrics."""
