"""Finds out by trying which part of the environment keeps TensorFlow from its GPU, for causes that no rule knows.

``parts`` lists what can be removed, ``smallest`` narrows it down (delta debugging), ``attempt`` is what a new
interpreter does, ``elsewhere`` reads which variables other files set, ``search`` decides what to try next, and
``wording`` describes the result. Only ``attempt`` and ``tries`` start processes; the rest is pure.
"""
