"""The engine on the host: the C engine on tensors, or on masters of tensors elsewhere."""
