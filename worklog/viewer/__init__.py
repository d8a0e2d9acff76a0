"""What each warp of a block accesses, for a page that shows it step by step."""
