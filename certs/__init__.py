"""One CA in a Secret, a leaf certificate per replica, and the `caBundle` of the webhook configurations."""
