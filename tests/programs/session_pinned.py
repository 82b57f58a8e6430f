"""A graph of TensorFlow 1 whose variable asks for a GPU that is not there."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
given = tf.placeholder(tf.float32, [None, 4])
with tf.device("/CPU:0"):
    bent = tf.tanh(given)
with tf.device("/GPU:5"):
    product = tf.matmul(bent, tf.ones([4, 4]))
with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
    metadata = tf.RunMetadata()
    session.run(product, {given: np.ones([2, 4])}, run_metadata=metadata)
    print("not asked for:", len(metadata.partition_graphs))
    asked = tf.RunOptions(output_partition_graphs=True)
    for _ in range(3):
        session.run([product, [bent]], {given: np.ones([2, 4])}, asked, metadata)
    print("asked for:", len(metadata.partition_graphs))
