"""Image and mask changed together, on tensors: geometry, stain, blur, compression."""
