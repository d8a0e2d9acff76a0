"""What is known of a kernel without timing it: memory counts, access pattern, resources by line, a lower bound."""
