"""TF_CONFIG, by which a process of TensorFlow finds the other hosts: the two forms that SageMaker's TensorFlow images give it. Pure."""

import json
from collections.abc import Mapping, Sequence

MULTI_WORKER_MIRRORED, PARAMETER_SERVER = "multi_worker_mirrored", "parameter_server"
FORMS = (MULTI_WORKER_MIRRORED, PARAMETER_SERVER)
_WORKER_PORT, _SERVER_PORT, _MIRRORED_PORT = 2222, 2223, 8890


def tf_config(form: str, hosts: Sequence[str], current_host: str, addresses: Mapping[str, str]) -> str:
    """The variable's text for the one process of `current_host`; `hosts` in node-rank order.

    `addresses`: host -> where it is reached, for hosts whose names nobody resolves.

    Holds:   every host names the same cluster; multi_worker_mirrored: task index == node rank
    Source:  aws/sagemaker-tensorflow-training-toolkit, training.py
    """

    def at(port: int, among: Sequence[str]) -> list[str]:
        return [f"{addresses.get(host, host)}:{port}" for host in among]

    index = list(hosts).index(current_host)
    if form == MULTI_WORKER_MIRRORED:
        cluster = {"worker": at(_MIRRORED_PORT, hosts)}
        task = {"index": index, "type": "worker"}
    else:
        cluster = {"master": at(_WORKER_PORT, hosts[:1])}
        if len(hosts) > 1:
            cluster |= {"ps": at(_SERVER_PORT, hosts), "worker": at(_WORKER_PORT, hosts[1:])}
        task = {"index": max(index - 1, 0), "type": "worker" if index else "master"}
    return json.dumps({"cluster": cluster, "environment": "cloud", "task": task})
