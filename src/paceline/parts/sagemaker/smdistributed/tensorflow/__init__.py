"""`smdistributed.dataparallel.tensorflow`, the API of AWS's releases 1.x.

    cluster.py        init, size, rank: the ranks of the job as one cluster of TensorFlow
    exchange.py       sums and broadcasts of tensors in that cluster, by shared memory or by TensorFlow's collectives
    shared_memory.py  those of one host: paceline's shared memory, on numpy arrays
    gradients.py      the mean of gradients
    calls.py          the module API, with the gradient tape
    optimizers.py     DistributedOptimizer, for the optimizers of Keras 3, tf-keras and tf.compat.v1
    keras.py          smdistributed.dataparallel.tensorflow.keras: the same for `fit`
    callbacks.py      its callbacks

calls.py and what follows import TensorFlow, but start nothing of it: a script may still choose its devices after `init`.
"""
