"""All that the gateway knows: the bus fills it and every transport reads it."""
