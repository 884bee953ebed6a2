"""What a section is made of: skin coordinates → layers → tumours → adnexa → damage, painted into a mask."""
