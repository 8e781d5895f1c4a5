"""The contents of events, the reports that speak against them, and the incidents that are open."""
