"""The engine on the device: the route of the plan, in torch operations."""
