"""Objects of the API as the engine reads and writes them: JSON into its types, and Placements back. Pure."""
