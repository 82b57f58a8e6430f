"""Uses TensorFlow, then starts a process that multiprocessing forks; it hangs, and is ended."""

import multiprocessing

import tensorflow as tf


def work():
    print(tf.reduce_sum(tf.ones([4])))


if __name__ == "__main__":
    print(float(tf.reduce_sum(tf.ones([4]))))
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(5)
    child.kill()
    child.join()
