"""SageMaker's control API on this machine: what `paceline sagemaker-local` serves, and the local hosts that really run its jobs.

refusal.py    what the API answers instead of doing it
model.py      botocore's service models: requests checked against them, answers written as they say
wishes.py     what a job has to satisfy beyond its shape
states.py     how a job goes from Starting to its end: a pure step
records.py    a job as it is kept and described; shelf.py  all of them, on disk
logbook.py    its lines, as CloudWatch Logs shows them; metrics.py  the numbers in them
objects.py    s3:// and file:// URLs; ground.py  the /opt/ml trees; parcels.py  archives and checkpoints
entries.py    what is started on a host; host.py  the host; crew.py  all hosts of a job
runner.py     one job from its data to its artefacts; queue.py  which job runs
operations.py the operations; serving.py  HTTP
"""
