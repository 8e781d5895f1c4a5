"""The state of the fleet: nodes and NICs, reports of ports and paths, and the routes in force."""
