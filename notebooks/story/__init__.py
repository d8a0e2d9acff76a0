"""Code that only one notebook of the story needs; the notebooks import it from here."""
