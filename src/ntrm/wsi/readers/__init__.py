"""One file for each way of reading a slide."""
