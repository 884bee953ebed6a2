"""Results and networks in the formats of other programs."""
