"""Who shares a link with whom, by policy: flows of many NICs on a leaf-spine fabric, each link shared fairly."""
