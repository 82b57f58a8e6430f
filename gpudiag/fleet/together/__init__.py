"""``fleet check --together``: the nodes of a fleet add vectors by ``MultiWorkerMirroredStrategy``.

The collector gives each node its task (:mod:`.planning`). A node (:mod:`.member`) takes its port, adds alone, and meets
the others (:mod:`.meeting`) before TensorFlow is started for the cluster (:mod:`.training`), because TensorFlow waits
for a node that never comes without a word. Each says what it saw; who is to blame follows from what all say
(:mod:`.blame`).
"""
