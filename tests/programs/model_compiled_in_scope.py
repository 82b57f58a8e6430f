"""Compiles a model in the scope of a strategy in which it was not made: TensorFlow raises, and does not say why."""

import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(1)])
with strategy.scope():
    model.compile("adam", "mse")
model.fit(tf.random.normal([64, 8]), tf.random.normal([64, 1]), batch_size=16, verbose=0)
