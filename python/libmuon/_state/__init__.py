"""The state: tensors, state dicts and checkpoints."""
