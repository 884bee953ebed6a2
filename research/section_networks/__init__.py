"""Networks whose tissue nodes are pooled over a whole section, with a training loop and an inference of their own."""
