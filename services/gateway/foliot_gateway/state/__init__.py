"""What the gateway knows: what the bus fills and every transport reads."""
