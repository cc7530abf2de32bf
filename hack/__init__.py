"""Tools of the checkout, for whoever works on the project: generated files, a kind cluster. Not part of the wheel."""
