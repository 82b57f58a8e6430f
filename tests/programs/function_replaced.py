"""Assigns to functions, sets variables too late and one that nothing reads."""

import os

import tensorflow as tf

tf.config.set_soft_device_placement = False
os.environ["TF_FORCE_GPU_ALOW_GROWTH"] = "true"
print(float(tf.reduce_sum(tf.ones([4]))))
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
