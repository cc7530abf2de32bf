"""Devices: what pods request, what hosts have, what is free, and which ones a pod gets."""
