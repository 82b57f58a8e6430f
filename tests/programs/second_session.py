"""Two sessions: the options of the second are ignored."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
first = tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.1)))
second = tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5)))
print(second.run(tf.reduce_sum(tf.ones([4]))))
