"""Devices of hosts: what hosts have, what is free, and which ones a pod gets."""
