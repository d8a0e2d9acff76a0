"""Other rulers on the same work, and this one beside them."""
