"""One file per command: parse, make one call, print."""
