"""Certificates: one CA in a Secret, a leaf per replica in memory, caBundle in the webhook configurations."""
