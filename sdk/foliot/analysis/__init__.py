"""What is told afterwards, from files: who held up a job that hangs, and who slowed down one that ran.

Pure, but for the two modules that read files: :mod:`.flight_recorder` and :mod:`.operator_trace`.
"""
