"""The life of one gang as a state machine: from what is observed to its next action and its status. Pure."""
