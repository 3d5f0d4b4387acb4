"""SageMaker's control API on this machine: the server of `paceline sagemaker-local`, and the local hosts that really run its jobs.

app.py             AWS's JSON protocol over HTTP; http_server.py  the server below it; signatures.py  authentication of requests
training_api.py    the operations of SageMaker; logs_api.py  those of CloudWatch Logs; sts.py  the caller's identity
service_model.py   botocore's service models: they check requests and format answers
validation.py      the constraints of a job beyond its shape; errors.py  the API's errors
states.py          the states of a job from Starting to its end, as a pure function
records.py         a job as it is stored and described; job_store.py  all jobs, on disk
log_streams.py     a job's output lines in the form of CloudWatch Logs; metrics.py  the numbers in these lines
objects.py         s3:// and file:// URLs; opt_ml.py  the /opt/ml trees; artifacts.py  archives and checkpoints
entrypoint.py      the program of a host; host.py  the host; host_processes.py  all hosts of a job
runner.py          runs one job from its data to its artefacts; queue.py  decides which job runs
"""
