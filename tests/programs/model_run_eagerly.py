"""Trains a model of Keras that was left as it was for finding errors."""

import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
model.fit(np.ones([16, 4], "float32"), np.zeros([16, 1], "float32"), verbose=0)
print("trained")
