"""Slow and hung ranks of a training job in the lab: are they named, for their cause, and nobody else?"""
