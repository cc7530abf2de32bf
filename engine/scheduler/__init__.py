"""Which gang is scheduled next, where it goes, and the sentence when it must wait."""
