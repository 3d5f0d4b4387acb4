"""SageMaker's control API on this machine: what `paceline sagemaker-local` serves, and the local hosts that really run its jobs.

app.py             AWS's JSON protocol over HTTP; http_server.py  the server below it; signatures.py  who may ask
training_api.py    the operations of SageMaker; logs_api.py  those of CloudWatch Logs; sts.py  who asks
service_model.py   botocore's service models: requests checked against them, answers written as they say
validation.py      what a job has to satisfy beyond its shape; errors.py  what the API answers instead of doing it
states.py          how a job goes from Starting to its end: a pure step
records.py         a job as it is kept and described; job_store.py  all of them, on disk
log_streams.py     a job's lines, as CloudWatch Logs shows them; metrics.py  the numbers in them
objects.py         s3:// and file:// URLs; opt_ml.py  the /opt/ml trees; artifacts.py  archives and checkpoints
entrypoint.py      what is started on a host; host.py  the host; host_processes.py  all hosts of a job
runner.py          one job from its data to its artefacts; queue.py  which job runs
"""
