"""What is known of a kernel without timing it: memory counts, access pattern, instruction mix, resources."""
