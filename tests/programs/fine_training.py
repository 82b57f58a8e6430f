"""Trains as it should: growth before the first tensor, a GPU that is there."""

import numpy as np
import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse", run_eagerly=False)
images, targets = np.ones([64, 4], "float32"), np.zeros([64, 1], "float32")
data = tf.data.Dataset.from_tensor_slices((images, targets)).batch(16)
data = data.map(lambda *batch: (tf.ensure_shape(tf.numpy_function(np.tanh, batch[:1], tf.float32), [16, 4]), batch[1]))
model.fit(data, epochs=2, verbose=0)
print("trained")
