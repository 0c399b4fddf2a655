"""What torch's modules compute: the layers of a network, as golden models know them."""
