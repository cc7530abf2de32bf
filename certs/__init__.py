"""The certificates of the webhook port: of a CA in a Secret, or made by others; and who trusts whom."""
