"""Three days of clocks in a simulated fleet, with all that befalls hosts, links and the leader of sync meanwhile."""
