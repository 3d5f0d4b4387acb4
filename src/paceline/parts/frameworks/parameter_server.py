"""A parameter server of TensorFlow: `python parameter_server.py`. TF_CONFIG names its cluster and task. It serves until it is killed."""

import sys


def main() -> None:
    """Serve."""
    # Python puts the directory of this file first, and its names are those of paceline's modules.
    if not sys.flags.safe_path:
        del sys.path[0]
    import tensorflow as tf

    place = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(place.cluster_spec(), job_name=place.task_type, task_index=place.task_id)
    server.join()


if __name__ == "__main__":
    main()
