"""What a labelled piece of skin tells: its tissue graph, margins, depth and orientation. For research only."""
