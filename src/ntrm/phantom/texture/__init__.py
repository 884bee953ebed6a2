"""What each tissue is made of: cells, fibres, lamellae and fat as haematoxylin and eosin concentrations."""
