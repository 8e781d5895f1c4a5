"""Lost ranks of a training job in the lab: what each costs, and what ten of them cost with Foliot and without."""
