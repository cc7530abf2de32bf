"""What the leader decided, as lines of its log: their form, the writer, and the reader of any log with such lines."""
