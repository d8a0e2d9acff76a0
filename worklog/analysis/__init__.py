"""What is known of a kernel without timing it: memory traffic, access pattern, instruction mix."""
