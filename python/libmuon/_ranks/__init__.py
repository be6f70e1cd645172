"""The ranks of an optimizer: where tensors lie, and how messages travel."""
