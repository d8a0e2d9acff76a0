"""What was found: runs, measurements, statistics, tables and comparisons, as files and data frames."""
