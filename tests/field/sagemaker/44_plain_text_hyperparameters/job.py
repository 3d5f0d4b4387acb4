"""Two jobs, as a state machine makes them: texts as they are, and texts as JSON. The server's socket is here.sock."""

import http.client
import json
import os
import socket
import tarfile
import time

HERE = os.getcwd()


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect("here.sock")


def call(action, **document):
    connection = Connection("localhost", timeout=30)
    headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"SageMaker.{action}"}
    connection.request("POST", "/", json.dumps(document), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} {text}")
    return json.loads(text)


with tarfile.open("sourcedir.tar.gz", "w:gz") as tar:
    tar.add("train.py")
code = f"file://{HERE}/sourcedir.tar.gz"
plain = {
    "epochs": "1",
    "dropout": "0.5",
    "job_name": "my_job",
    "sagemaker_program": "train.py",
    "sagemaker_submit_directory": code,
}
quoted = {
    "epochs": "1",
    "job_name": '"my_job"',
    "sagemaker_program": '"train.py"',
    "sagemaker_submit_directory": json.dumps(code),
}
for number, hyperparameters in enumerate((plain, quoted)):
    name = f"plain-{number}"
    try:
        call(
            "CreateTrainingJob",
            TrainingJobName=name,
            RoleArn="arn:aws:iam::000000000000:role/training",
            AlgorithmSpecification={"TrainingImage": "any", "TrainingInputMode": "File"},
            HyperParameters=hyperparameters,
            Environment={"SHOW_ARGUMENTS": f"{HERE}/got.txt"},
            OutputDataConfig={"S3OutputPath": f"file://{HERE}/out"},
            ResourceConfig={"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 300},
        )
    except (RuntimeError, OSError) as error:
        print(name, "refused:", error)
        continue
    while True:
        job = call("DescribeTrainingJob", TrainingJobName=name)
        if job["TrainingJobStatus"] not in ("InProgress", "Stopping"):
            break
        time.sleep(0.5)
    print(name, job["TrainingJobStatus"], job.get("FailureReason"), flush=True)
